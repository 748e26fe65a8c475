"""The fast front: Python inside Envoy, in one or more worker processes on one port.

Settings come in; workers that are watched and replaced go out.
"""
