"""Expressions about calls of gRPC, as gRFC A106 and A103 have them.

Text or checked messages come in; programs over a call's attributes go out.
"""
