"""Decodes xDS messages into values.

A message comes in; a value goes out, or every problem of the resource.
"""
