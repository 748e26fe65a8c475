"""Makes calls late or fail: Envoy's fault injection, as gRFC A33 has it.

Messages come in and become a filter.
"""
