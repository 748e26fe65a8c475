"""Listens for checks; `answer_checks` has what all fronts share.

The bytes of a check come in; the bytes of an answer go out, which is a denial if anything fails.
"""
