"""The values of the routing graph, in no proxy's vocabulary.

The passes of `graph` make them; `status`, `render` and `serving` read them.
"""
