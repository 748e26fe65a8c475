"""Writes the CustomResourceDefinitions of all kinds, from the annotations that the readers are made from.

``python -m tools.gen_crds`` writes ``src/authplane/resources/schemas/crds.json``, which ``authplane crds`` prints; a
test compares it.
"""
