"""Which version of a document is in force, wherever documents come from.

New content of files comes in; what may take effect goes out. What cannot be read, or loosens, waits.
"""
