"""MCP: a server made with the official SDK, messages as clients post them, and the checks that Envoy makes of them.

Tools and arguments come in; requests and answers go out.
"""
