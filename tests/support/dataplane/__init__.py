"""What the data plane of gRPC is given: messages of xDS, filters that show what they were built from, calls.

Keyword arguments come in; messages, registries and driven calls go out.
"""
