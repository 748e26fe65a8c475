"""Derives the status of each resource, as Kubernetes stores it.

Reports, compiled policies and what proxies accepted come in; conditions go out.
"""
