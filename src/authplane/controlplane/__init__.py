"""The control plane: documents to Envoy's xDS, in reading order graph, status, render, serving.

Resources come in from `sources`; messages for proxies and a status for each resource go out.
"""
