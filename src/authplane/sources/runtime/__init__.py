"""Reads and watches folders, switches their content at once, and keeps last good versions on disk.

A path comes in; the documents in force go out, again after each change.
"""
