"""Reads certificates, CA bundles and revocation lists for TLS with clients and upstreams.

Secrets and references come in; checked certificates go out, or the reason why there is none.
"""
