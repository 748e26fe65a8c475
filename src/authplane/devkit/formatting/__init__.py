"""Writes YAML in one form: `authplane fmt`.

The text of a file comes in; the same documents and comments go out, with the same indentation and order everywhere.
"""
