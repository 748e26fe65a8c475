"""The xDS protocol as state machines that do no I/O.

Messages, snapshots and time come in; messages to send go out.
"""
