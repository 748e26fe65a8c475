"""Keeps the keys of issuers at hand, without any request waiting for one.

Issuers to follow come in; keys go out, and what happened with each issuer.
"""
