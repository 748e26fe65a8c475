"""Finds what is wrong with a running gateway: `doctor` and `decisions`.

Addresses and pages of running programs come in; findings and counts go out.
"""
