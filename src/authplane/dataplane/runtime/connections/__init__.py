"""Channels that are kept and shared, and the credentials of their calls.

Targets and credentials come in; open channels and tokens go out.
"""
