"""The graph as Envoy's protobuf messages: the same bytes for the same graph.

A graph comes in; named resources go out.
"""
