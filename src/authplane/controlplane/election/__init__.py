"""Decides which replica of the control plane writes statuses, and adds up what the proxies of all replicas accepted.

Leases as the API server has them and times of the own monotonic clock come in; Leases to write go out.
"""
