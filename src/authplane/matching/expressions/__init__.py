"""Expressions of CEL in trees of matchers, as gRFC A106 has them.

Messages come in; inputs and matchers of a tree go out.
"""
