"""HTTP filters for gRPC calls, on servers and channels.

A call comes in; the filter yields effects that it needs, and then lets the call proceed, changes it or stops it.
"""
