"""CEL expressions in matcher trees, as gRFC A106 defines them.

Messages come in; inputs and matchers of a tree go out.
"""
