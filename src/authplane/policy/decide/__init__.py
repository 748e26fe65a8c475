"""Decides a request by the policies of its target, in order, until one denies.

A request, the evidence of its sender and the policies come in; a verdict goes out, or a flow that yields effects
first.
"""
