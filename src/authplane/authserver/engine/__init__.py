"""Answers one check, without I/O.

The bytes of a check and a backend come in; the bytes of the answer go out, with the request and the decision.
"""
