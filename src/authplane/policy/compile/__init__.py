"""Compiles AccessPolicy documents into rules.

Documents and settings come in; policies attached to targets go out, with the problems and the status of each
document.
"""
