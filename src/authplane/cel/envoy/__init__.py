"""Translates expressions into conditions of Envoy's RBAC filter.

A checked syntax tree comes in; a condition with the same answer goes out, or the reason why there is none.
"""
