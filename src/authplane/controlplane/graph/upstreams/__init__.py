"""Builds clusters from Services, ExtensionServices and the policy server.

References come in; clusters with endpoints, TLS and limits go out, or problems.
"""
