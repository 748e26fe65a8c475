"""Tells people why an expression holds or not.

A program and its data come in; the value of each part, and what would have to change, go out.
"""
