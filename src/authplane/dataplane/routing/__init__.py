"""Chooses the route of a call and the filters on it; both are built when the configuration arrives.

Values of `config` come in; route tables with built filters go out.
"""
