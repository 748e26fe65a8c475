"""Expressions before anybody uses them: compiled, limited in cost, free of what we forbid.

Text comes in; a program goes out, or problems that name the place in the text.
"""
