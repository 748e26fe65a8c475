"""Expressions as Envoy's own filters evaluate them.

A checked tree comes in; a condition that gives the same answer goes out, or the reason why there is none.
"""
