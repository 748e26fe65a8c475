"""Servers whose calls pass filters, named in code or configured by xDS.

Handlers and addresses come in; a server goes out that has the interface of grpcio's own.
"""
