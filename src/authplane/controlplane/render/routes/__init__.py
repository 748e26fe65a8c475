"""Renders route configurations: matches, actions, weights, and the context of checks.

Routes of the graph come in; RouteConfiguration messages go out.
"""
