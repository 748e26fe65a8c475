"""Matchers of strings, headers and fractions; they decide about values and know no protobuf but in wire."""
