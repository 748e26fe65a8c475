"""What is written down of each decision.

An answer comes in; one line of JSON goes out.
"""
