"""Renders Listeners for gRPC servers that enforce policies without a proxy.

gRPC servers of the graph come in; Listener messages that gRPC's xDS client accepts go out.
"""
