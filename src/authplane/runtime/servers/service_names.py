"""The names of the gRPC services that an authorization server has, whatever carries them."""

from typing import Final

SERVICE: Final = "envoy.service.auth.v3.Authorization"
SERVICES: Final = (SERVICE, "envoy.service.auth.v2.Authorization")
"""The older version has the same messages, but for fields that we do not read or send."""
HEALTH: Final = "grpc.health.v1.Health"
REFLECTIONS: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Both have the same messages on the wire."""
