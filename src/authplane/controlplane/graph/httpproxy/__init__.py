"""Builds virtual hosts from HTTPProxies: includes, conditions, actions, authorization.

Root HTTPProxies come in; hosts go out, or the problems that withdraw them.
"""
