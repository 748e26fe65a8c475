"""Verifies bearer tokens, and says which keys of an issuer to fetch and when.

The text of a token and the issuer's keys come in; claims go out, or the reason to reject the token.
"""
