"""Envoy's fault filter, as gRFC A33 defines it: it delays calls or fails them.

A configuration message comes in; a filter goes out.
"""
