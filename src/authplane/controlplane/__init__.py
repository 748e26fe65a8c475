"""The control plane: it turns resources into Envoy's configuration.

The documents in force come in from `sources`; xDS resources for proxies go out, and a status for each document. The
stages are graph, status, render and serving.
"""
