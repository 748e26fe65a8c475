"""Writes the decision log, counts metrics and makes trace spans, without delaying a check.

Answers come in; lines, metrics and spans go out.
"""
