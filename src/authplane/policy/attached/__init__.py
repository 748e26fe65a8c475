"""Which policies stand before which target.

Compiled policies come in; a chain for each target goes out.
"""
