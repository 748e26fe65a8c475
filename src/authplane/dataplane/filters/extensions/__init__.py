"""Configurations of extensions, which are filters for the most part.

An `Any` comes in; the message that it holds goes out.
"""
