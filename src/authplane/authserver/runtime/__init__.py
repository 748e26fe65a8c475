"""Runs the authorization service as a program.

The command line or an AuthorizationService document comes in; a server goes out, with fronts, backends and an admin
port.
"""
