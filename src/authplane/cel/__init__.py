"""CEL expressions over requests, identities and gRPC calls.

Text or a protobuf message comes in and is checked once; then data comes in, and an outcome goes out. An expression is
true only if the engine returns true.
"""
