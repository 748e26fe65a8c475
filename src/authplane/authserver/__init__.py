"""The authorization server: fronts, engine, backends, records.

Checks of ext_authz come in over gRPC or HTTP; decisions go out, and a record of each.
"""
