"""xDS messages to our values, with every problem of a resource at once.

Messages come in; values go out.
"""
