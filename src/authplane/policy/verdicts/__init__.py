"""Verdicts: a decision with its grounds, the effects that it may yield, and which allowances may be remembered.

Plain values: `decide` returns them, and the authorization service carries them to the decision log.
"""
