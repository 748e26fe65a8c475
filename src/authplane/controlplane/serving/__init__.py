"""Builds one generation after the other: documents, graph, status and snapshots.

The documents in force and issuers' keys come in; a snapshot for each release of Envoy goes out.
"""
