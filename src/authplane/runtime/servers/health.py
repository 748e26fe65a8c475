"""The gRPC health service: ``grpc.health.v1.Health/Check``."""

from collections.abc import Callable, Collection
from typing import Final

import grpc
import grpc.aio

from authplane.runtime.servers.health_check import HealthFault, check_health
from authplane.runtime.servers.service_names import HEALTH

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def health_service(services: Collection[str], *, serving: Callable[[], bool] = lambda: True) -> grpc.GenericRpcHandler:
    """Build the health service of a server and of each of ``services``; other names get NOT_FOUND."""

    async def check(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        reply = check_health(body, services, serving=serving())
        if not isinstance(reply, HealthFault):
            return reply
        await context.abort(_CODES[reply.code], reply.message)
        raise AssertionError("abort always raises")

    return grpc.method_handlers_generic_handler(HEALTH, {"Check": grpc.unary_unary_rpc_method_handler(check)})
