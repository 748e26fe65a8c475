"""Expressions as Envoy's own filters evaluate them, and what it would refuse or answer otherwise."""
