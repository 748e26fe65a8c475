"""One authorization plane for Envoy, gRPC and MCP.

Policies and resources come in; configuration for proxies and decisions about requests go out. Nothing is imported here.
"""
