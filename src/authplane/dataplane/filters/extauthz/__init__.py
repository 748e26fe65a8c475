"""Envoy's ext_authz filter, as gRFC A92 defines it: it sends a check for each call.

A call comes in; a check goes out, and its answer, or the lack of one in time, decides.
"""
