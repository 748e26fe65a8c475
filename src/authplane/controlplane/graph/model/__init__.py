"""The routing graph as values: what the gateway does, in no proxy's vocabulary.

The passes make them; `status` and `render` read them.
"""
