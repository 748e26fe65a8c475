"""Unpacks the configurations of filters and other extensions.

An `Any` or a `TypedStruct` comes in; the configuration of a known filter goes out, or problems.
"""
