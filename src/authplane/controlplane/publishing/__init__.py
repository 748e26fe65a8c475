"""Publishes statuses in a Kubernetes cluster: one replica of the control plane writes them.

Statuses and what proxies accepted come in; writes to the API server go out.
"""
