"""Describes each decision for the decision log.

An answer comes in; a record and its line of JSON go out.
"""
