"""What Envoy decides by itself: token verification, RBAC and the replies to denied clients.

Placed rules come in; filters and their overrides go out.
"""
