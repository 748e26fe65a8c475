"""Route configurations: matches, actions, weights, and what a check is about.

Routes of the graph come in; RouteConfiguration messages go out.
"""
