"""The gRPC health service: ``grpc.health.v1.Health/Check``."""

from collections.abc import Callable, Collection
from typing import Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

_SERVING: Final = Int32Value(value=1).SerializeToString()
_NOT_SERVING: Final = Int32Value(value=2).SerializeToString()
"""HealthCheckResponse has one field, number 1, an enumeration: on the wire it is an Int32Value."""


def health_service(services: Collection[str], *, serving: Callable[[], bool] = lambda: True) -> grpc.GenericRpcHandler:
    """Answer for the server as a whole and for each of ``services``; NOT_FOUND for others."""
    known = frozenset({"", *services})

    async def check(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            # HealthCheckRequest has one field, number 1, a string: on the wire it is a StringValue.
            service = StringValue.FromString(body).value
        except DecodeError:
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
        if service not in known:
            await _refuse(context, grpc.StatusCode.NOT_FOUND, "unknown service")
        return _SERVING if serving() else _NOT_SERVING

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
    )


async def _refuse(context: grpc.aio.ServicerContext[bytes, bytes], code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError("abort always raises")
