"""What was tried on the way to a decision.

Steps come in while a request is judged; a tree for people goes out.
"""
