"""Small worlds of AccessPolicies: documents, callers, requests, and the verdict.

YAML comes in; decisions go out.
"""
