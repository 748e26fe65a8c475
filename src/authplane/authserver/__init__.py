"""The authorization service: it answers ext_authz checks.

A check comes in over gRPC or HTTP; a decision goes out, with a record of it. A check passes fronts, engine, backends
and records, in this order; `runtime` is the program.
"""
