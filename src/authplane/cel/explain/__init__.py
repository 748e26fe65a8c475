"""Explains why an expression is true or not.

A program and its data come in; the value of each part goes out, and what would have to change.
"""
