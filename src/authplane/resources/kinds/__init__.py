"""The kinds that we read, a file for each API group.

Each is a frozen dataclass, whose annotations say how it is read.
"""
