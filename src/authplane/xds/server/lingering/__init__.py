"""What proxies keep of an extension's earlier versions, because routes of before may name it.

Accepted versions come in; versions joined with what lingers go out.
"""
