"""gRPC HTTP filters: what happens to a call before its handler, or before it leaves."""
