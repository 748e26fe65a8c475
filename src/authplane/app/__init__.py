"""Wires the parts together."""
