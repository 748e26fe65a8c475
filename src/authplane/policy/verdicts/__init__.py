"""Verdicts: a decision with its grounds, what it may ask for on the way, and which may be remembered.

Plain values that `decide` returns.
"""
