"""Requests to MCP servers: read strictly once, and how they are refused.

Headers and body come in; the method and tool go out, or a refusal as the protocol writes it.
"""
