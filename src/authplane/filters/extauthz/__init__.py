"""Asks an authorization service about each call: Envoy's ext_authz, as gRFC A92 has it for gRPC."""
