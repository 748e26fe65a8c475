"""Converts expressions between protobuf messages and our syntax trees.

Messages of the engine or of a peer come in; our syntax trees go out, and types of a vocabulary for the engine.
"""
