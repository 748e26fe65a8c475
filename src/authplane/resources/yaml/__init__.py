"""Reads strict YAML.

The text of a document comes in; nodes with line and column go out, or a problem.
"""
