"""Filters around the calls of grpcio's servers and channels."""
