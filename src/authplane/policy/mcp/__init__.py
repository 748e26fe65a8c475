"""Reads requests to MCP servers, once and strictly, and writes refusals as the protocol defines them.

Headers and body come in; the method and the tool go out, or a refusal.
"""
