"""HTTPProxies to virtual hosts: includes, conditions, actions, authorization.

Root HTTPProxies come in; hosts go out, or what withdraws them.
"""
