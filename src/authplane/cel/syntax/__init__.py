"""Syntax trees of expressions: their nodes, what they read, and the vocabulary that they may use.

A tree comes in; the paths that it reads go out, or its text as people write it.
"""
