"""Folders on disk: read, watched, switched at once; last good versions outlive the process.

Paths come in; loaded resources go out, again after each change.
"""
