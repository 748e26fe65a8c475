"""The kinds that we read, one file for each API group.

Each kind is a frozen dataclass; `typed` makes its reader from the annotations.
"""
