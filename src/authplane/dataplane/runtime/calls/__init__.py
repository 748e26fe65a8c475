"""Runs the filters of one call, on a thread or on an event loop.

A call of grpcio comes in; it goes on, changed or not, or ends.
"""
