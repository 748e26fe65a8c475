"""Who decides: the test backend, lists of users, AccessPolicies, or a choice of them.

A request comes in; a decision goes out, or a flow that asks for what it needs.
"""
