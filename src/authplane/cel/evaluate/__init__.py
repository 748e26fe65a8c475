"""Evaluates programs, with what they need and nothing more.

A program and facts come in; true, false or why there is neither goes out.
"""
