"""Identifies workloads: SPIFFE ids and ServiceAccounts, by certificate or token.

Certificates, verified tokens and token reviews come in; an identity goes out, or the reason why there is none.
"""
