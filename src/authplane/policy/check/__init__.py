"""One check as everybody sees it: the request, the decision, and what both may carry.

Plain values; nothing here knows of policies.
"""
