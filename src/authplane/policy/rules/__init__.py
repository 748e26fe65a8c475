"""Rules as values: who may do what, on which target, with which settings.

`compile` makes them from documents; `decide` and `placement` read them.
"""
