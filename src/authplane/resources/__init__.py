"""Reads text into typed documents.

The content of files comes in; resources by kind and name go out, and every problem with file, line, column and field
path.
"""
