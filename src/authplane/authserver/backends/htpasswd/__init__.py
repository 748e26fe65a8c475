"""HTTP Basic against lists of users.

User lists and a request come in; a decision goes out.
"""
