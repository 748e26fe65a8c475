"""Decides requests by HTTP Basic credentials against user lists.

User lists and a request come in; a decision goes out, or a flow that first has a password hashed.
"""
