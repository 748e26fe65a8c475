"""Bearer tokens: what a signed token proves, and which keys it is verified with.

Text of a token and an issuer's keys come in; claims go out, or why nobody believes them.
"""
