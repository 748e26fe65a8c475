"""CEL expressions over requests, identities and calls: true only if the engine says true.

Text or a message comes in and is checked once; then data comes in, and an outcome goes out that can be explained.
"""
