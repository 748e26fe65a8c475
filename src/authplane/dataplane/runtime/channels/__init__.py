"""Channels whose calls filters judge.

A target comes in; a channel goes out that looks like grpcio's own.
"""
