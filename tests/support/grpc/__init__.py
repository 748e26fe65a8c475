"""gRPC servers, channels and control planes of the tests' own, on threads and on a loop.

Handlers and resources come in; ports and outcomes of calls go out.
"""
