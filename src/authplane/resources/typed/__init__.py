"""Readers that are made from the annotations of a kind.

A node comes in; a value goes out, or every problem with its path.
"""
