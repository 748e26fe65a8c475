"""Makes calls late or fail, to see what becomes of it: Envoy's fault injection, as gRFC A33 has it for clients."""
