"""Whole gateways on this machine: the programs as users start them, Envoy, and a folder to edit.

Documents come in; a place to send requests to goes out.
"""
