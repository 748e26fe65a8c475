"""Fetches the keys of issuers in the background, so that no request waits for them.

Issuers to follow come in; their keys go out, and events about each issuer.
"""
