"""Expressions as protobuf messages.

Messages of the engine or of a peer come in, our trees go out, and the other way round.
"""
