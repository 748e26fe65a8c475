"""Builds again only what has changed.

A build function and tables come in; the result goes out, a remembered one if everything that the function read is the
same.
"""
