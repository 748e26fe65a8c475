"""Who sends a request, by what it proves: certificates, tokens, and never a header.

A request comes in; verified identities go out, or why there are none.
"""
