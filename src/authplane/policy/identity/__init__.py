"""Identifies who sends a request, by certificates and tokens, never by a header.

A request and the trusted issuers come in; verified identities go out, or the reason why there is none.
"""
