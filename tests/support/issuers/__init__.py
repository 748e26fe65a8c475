"""Whoever vouches for callers: issuers over HTTPS, tokens good and bad, key rings, certificates of workloads.

Claims and names come in; signed texts go out.
"""
