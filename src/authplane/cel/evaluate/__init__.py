"""Evaluates programs, and reads only the data that they need.

A program and facts come in; true, false or a failure goes out.
"""
