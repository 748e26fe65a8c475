"""Reads the address and the credentials of the service that a filter calls, as gRFC A102 defines them.

A `GrpcService` message comes in; a value goes out, or problems.
"""
