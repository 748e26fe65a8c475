"""Role-based access control: Envoy's rbac filter, as gRFC A41 has it.

Messages come in and become a filter.
"""
