"""Envoy's rbac filter, as gRFC A41 defines it: role-based access control.

A configuration message comes in; a filter goes out.
"""
