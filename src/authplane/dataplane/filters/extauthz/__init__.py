"""Asks an authorization service about each call: Envoy's ext_authz, as gRFC A92 has it.

A call comes in; a question goes out; the answer, its absence or its delay decides.
"""
