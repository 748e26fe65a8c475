"""Gateways, HTTPRoutes and Backends as hosts and routes, and which requests policies protect.

Documents and policies come in; ports, hosts and routes go out, with what became of each document.
"""
