"""Decides what to write about statuses to a Kubernetes API server.

Statuses and the objects that the API server has come in; patches of statuses and Events go out.
"""
