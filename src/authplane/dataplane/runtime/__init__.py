"""Servers and channels of grpcio whose calls filters judge.

A plan or an xDS target comes in; a server or a channel goes out.
"""
