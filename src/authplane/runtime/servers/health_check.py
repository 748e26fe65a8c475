"""What the gRPC health service answers, whatever carries it."""

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
    """Why there is no answer: a gRPC status."""

    code: int
    message: str


def check_health(body: bytes, services: Collection[str], *, serving: bool) -> bytes | HealthFault:
    """Answer for the server as a whole and for each of ``services``."""
    try:
        # HealthCheckRequest has one field, number 1, a string: on the wire it is a StringValue.
        service = StringValue.FromString(body).value
    except DecodeError:
        return HealthFault(_INVALID_ARGUMENT, "not a HealthCheckRequest")
    if service and service not in services:
        return HealthFault(_NOT_FOUND, "unknown service")
    return _SERVING if serving else _NOT_SERVING
