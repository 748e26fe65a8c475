"""The question to an authorization service, and its answer.

A call comes in; messages of `envoy.service.auth.v3` go out and come back.
"""
