"""Talks to a Kubernetes API server: credentials that are rotated, requests, watches.

A kubeconfig or a Pod's ServiceAccount comes in; responses and lines of watches go out.
"""
