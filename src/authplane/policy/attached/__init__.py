"""Attaches policies to targets.

Compiled policies come in; for each target goes out the chain of policies that a request to it must pass.
"""
