"""Resources written as YAML, as users write them, and what becomes of them.

Changes of a world that works come in; its graph, status and rendered messages go out.
"""
