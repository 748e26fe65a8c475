"""The kinds we read, a file for each API group."""
