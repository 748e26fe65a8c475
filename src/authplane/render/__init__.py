"""Graph to Envoy's protobuf messages: total functions, the same bytes for the same graph."""
