"""Decides requests: the test backend, user lists, AccessPolicies.

A request comes in; a decision goes out, with its grounds if there are any, or a flow that yields what it needs first.
"""
