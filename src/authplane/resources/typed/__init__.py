"""Makes readers from the annotations of a kind.

A YAML node comes in; a value goes out, and every problem with its field path.
"""
