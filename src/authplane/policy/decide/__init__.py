"""Decides: all policies before a target, in order, until one denies.

A request and its evidence come in; a verdict goes out.
"""
