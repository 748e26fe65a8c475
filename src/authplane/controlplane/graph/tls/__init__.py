"""Secrets and trust for TLS, towards clients and upstreams.

Secrets and references come in; usable certificates go out, or why there is none.
"""
