"""The request and the decision of a check, and the headers that each may carry.

Plain values and small functions over them; nothing here knows policies.
"""
