"""Matchers of strings, headers and fractions, and the trees of the unified matcher.

Messages come in through `wire` modules and become matchers; then a subject comes in, and the action that matches goes
out.
"""
