"""Channels of grpcio whose calls filters judge."""
