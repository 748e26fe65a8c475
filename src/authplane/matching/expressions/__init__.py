"""Expressions of CEL in trees of matchers, as gRFC A106 has them."""
