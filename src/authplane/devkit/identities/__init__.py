"""Throw-away certificates and tokens.

Names come in; keys, certificates and signed tokens go out that nobody should trust in earnest.
"""
