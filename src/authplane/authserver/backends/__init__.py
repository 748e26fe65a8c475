"""Decides requests: the test backend, user lists, AccessPolicies, or a choice of several backends.

A request comes in; a decision goes out, or a flow that yields what it needs and then returns a decision.
"""
