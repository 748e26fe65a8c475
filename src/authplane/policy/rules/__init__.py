"""Rules as values: who may do what, and where.

`compile` makes them; `decide` and `placement` read them.
"""
