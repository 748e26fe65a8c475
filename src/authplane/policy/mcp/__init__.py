"""Requests to MCP servers: what they ask for, read strictly once, and how they are refused."""
