"""Expressions: checked, evaluated, and evaluated again by a small reference that shares no code with ours.

Texts come in; programs, problems and outcomes go out.
"""
