"""Connects backends to the world: user files, password hashing, external services, the current AccessPolicies.

Folders, files and settings come in; backends that stay up to date go out, and the outcomes of their effects.
"""
