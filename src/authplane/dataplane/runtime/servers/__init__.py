"""Servers whose calls filters judge, with filters named in code or by xDS.

Handlers and addresses come in; a server goes out that looks like grpcio's own.
"""
