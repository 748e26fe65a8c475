"""The authorization server as a program: what its document or command line says, put together.

Settings come in; a server with its admin port goes out.
"""
