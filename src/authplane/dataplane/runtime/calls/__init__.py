"""Runs the filters of one call, on a thread or on an event loop.

A call of grpcio comes in; a verdict goes out: the call proceeds, perhaps changed, or ends.
"""
