"""Servers of grpcio whose calls filters judge."""
