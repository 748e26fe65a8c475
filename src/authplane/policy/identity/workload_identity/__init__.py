"""Who a workload is: SPIFFE ids and ServiceAccounts, by certificate or token.

Certificates, tokens and a cluster's reviews come in; an identity goes out, or why there is none.
"""
