"""Runs the election, and writes statuses and Events to the API server.

The API server, statuses and answers of proxies come in; requests to the API server go out.
"""
