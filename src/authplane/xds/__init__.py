"""The xDS protocol as state machines without I/O, server side and client side.

Messages, snapshots and the time come in; messages to send go out, and events such as ACK and NACK.
"""
