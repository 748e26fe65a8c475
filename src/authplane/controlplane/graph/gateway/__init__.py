"""Builds ports, hosts and routes from Gateways, HTTPRoutes and Backends, and finds which requests policies protect.

Documents and policies come in; graph values go out, with the outcome of each document.
"""
