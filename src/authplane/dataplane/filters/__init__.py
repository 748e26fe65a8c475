"""gRPC HTTP filters: what happens to a call before its handler, or before it leaves.

A call comes in; a filter yields what it needs, then lets it go on, changes it or ends it.
"""
