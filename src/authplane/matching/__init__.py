"""Matchers of strings, headers and fractions, and the unified matcher's trees.

Messages come in through `wire` modules and become values; a subject comes in, the action that fits goes out.
"""
