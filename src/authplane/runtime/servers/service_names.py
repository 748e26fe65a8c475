"""Names of the gRPC services of an authorization service, for every transport."""

from typing import Final

SERVICE: Final = "envoy.service.auth.v3.Authorization"
SERVICES: Final = (SERVICE, "envoy.service.auth.v2.Authorization")
"""The older version has the same messages, except for fields that we neither read nor send."""
HEALTH: Final = "grpc.health.v1.Health"
REFLECTIONS: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Both have the same messages on the wire."""
