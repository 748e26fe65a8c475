"""Makes throw-away certificates and tokens.

Names come in; keys, certificates and signed tokens go out, for development only.
"""
