"""Receives checks over grpcio, inside Envoy (pyvoy) and over plain HTTP.

Connections come in; answers go out. All of it is I/O, so all of it is in `runtime`.
"""
