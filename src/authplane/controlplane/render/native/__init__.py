"""Renders the rules that Envoy decides by itself: token verification, RBAC and replies to denied clients.

Placed rules come in; HTTP filters and their settings for each route go out.
"""
