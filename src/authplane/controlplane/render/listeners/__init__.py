"""Renders listeners: ports, filter chains and the order of HTTP filters.

Hosts of the graph come in; Listener messages go out.
"""
