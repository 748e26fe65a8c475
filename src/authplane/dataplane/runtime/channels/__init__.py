"""Channels whose calls pass filters.

A target comes in; a channel goes out that has the interface of grpcio's own.
"""
