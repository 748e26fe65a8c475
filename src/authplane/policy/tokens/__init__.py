"""Bearer tokens: what a signed token proves, and which keys it is verified with."""
