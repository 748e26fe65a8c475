"""Strict YAML.

Text comes in; nodes that know their line and column go out.
"""
