"""One authorization plane for Envoy, gRPC and MCP."""
