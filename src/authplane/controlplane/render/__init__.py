"""Renders the graph as Envoy's protobuf messages.

A graph and a release of Envoy come in; named resources go out, the same bytes for the same graph.
"""
