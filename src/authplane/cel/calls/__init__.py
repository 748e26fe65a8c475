"""Compiles expressions about gRPC calls, as gRFC A106 and A103 define them.

Text or checked messages come in; programs over the attributes of a call go out, or problems.
"""
