"""CEL expressions over requests and identities: checked when they are written, and true only if they say true."""
