"""The control plane as a program: the ADS server, its streams, keys of issuers, the folder's socket.

Sources tell of changes; proxies get them.
"""
