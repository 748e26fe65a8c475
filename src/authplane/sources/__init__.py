"""Decides which version of each document is in force.

New contents of files come in; the documents in force go out. A file with an error keeps its last good version, and a
change that takes protection away waits.
"""
