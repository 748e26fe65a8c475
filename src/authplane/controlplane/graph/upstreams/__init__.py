"""Services, ExtensionServices and the policy server as clusters.

References come in; endpoints, TLS and limits go out.
"""
