"""Compiles expressions, limits their cost and rejects what we forbid.

Text and a vocabulary come in; a program goes out, or problems with their place in the text.
"""
