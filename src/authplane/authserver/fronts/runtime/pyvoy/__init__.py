"""Runs the fast front: Python inside Envoy, in one or more worker processes on one port.

Settings come in; watched workers go out, and a worker that dies or hangs is replaced.
"""
