"""Responses of the gRPC health service, for every transport."""

from collections.abc import Collection
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_SERVING: Final = Int32Value(value=1).SerializeToString()
_NOT_SERVING: Final = Int32Value(value=2).SerializeToString()
"""HealthCheckResponse has one field, number 1, an enumeration: on the wire it is an Int32Value."""


class HealthFault(NamedTuple):
    """The gRPC status of a failed health check."""

    code: int
    message: str


def check_health(body: bytes, services: Collection[str], *, serving: bool) -> bytes | HealthFault:
    """Build the response for the server (empty name) or for one of ``services``."""
    try:
        # HealthCheckRequest has one field, number 1, a string: on the wire it is a StringValue.
        service = StringValue.FromString(body).value
    except DecodeError:
        return HealthFault(_INVALID_ARGUMENT, "not a HealthCheckRequest")
    if service and service not in services:
        return HealthFault(_NOT_FOUND, "unknown service")
    return _SERVING if serving else _NOT_SERVING
