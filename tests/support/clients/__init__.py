"""Clients that are not ours: curl, an HTTP/2 client that breaks rules, packages of npm.

Addresses come in; answers as such a client tells them go out.
"""
