"""Listeners of gRPC servers that enforce policies without a proxy.

gRPC servers of the graph come in; Listener messages that grpcio understands go out.
"""
