"""The authorization service's portable gRPC front: ``Authorization/Check`` of ``envoy.service.auth`` v3 and v2."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import Choice
from authplane.authserver.engine.wire import with_context
from authplane.authserver.fronts.runtime.answer_checks import Checks, Observing, Perform, no_room
from authplane.authserver.fronts.runtime.reflection import Reflection
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.authserver.records.runtime.traces import NO_TRACE, caller_trace
from authplane.policy.check.check_context import TARGET, TARGET_METADATA
from authplane.runtime.servers.grpc_server import Tls, serve_grpc
from authplane.runtime.servers.health import health_service
from authplane.runtime.servers.listen import Address
from authplane.runtime.servers.service_names import REFLECTIONS, SERVICES
from authplane.runtime.servers.tls_files import TlsFiles

_OPTIONS: Final = (
    # Without this a second server on the same port would get half of the checks.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 1000),
    # Only what is not compressed: the other engine reads nothing else.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # A client that begins calls and never ends them loses them with their connection.
    ("grpc.max_connection_age_ms", 600_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
    # Envoy pings the policy server every second; clients that ping more often than this are sent away.
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
)


@asynccontextmanager
async def serve_authz(  # noqa: PLR0913 (most have a default)
    backend: Backend | Choice,
    front: FrontPlan,
    *,
    observer: Observing,
    perform: Perform = no_room,
    ready: Callable[[], bool] = lambda: True,
    tls: Tls | None = None,
) -> AsyncGenerator[Address]:
    """Serve checks while the block runs; yields the address with the actual port.

    Without ``tls``, the files that the plan names are used. Raises a `ListenError` if the address is not available or a
    file cannot be read.
    """
    shown = tls or TlsFiles.open(certificate=front.tls.certificate, key=front.tls.key, ca=front.tls.ca)
    checks = Checks(backend, observer=observer, perform=perform, in_flight=front.in_flight)
    reflection = Reflection()
    handlers = [
        *(_authorization(checks, service) for service in SERVICES),
        health_service(SERVICES, serving=ready),
        *(reflection.handler(version) for version in REFLECTIONS),
    ]
    options = [
        *_OPTIONS,
        ("grpc.max_receive_message_length", front.largest_message),
        ("grpc.max_allowed_incoming_connections", front.limits.connections),
    ]

    def build() -> grpc.aio.Server:
        return grpc.aio.server(handlers=handlers, options=options)

    async with serve_grpc(build, front.address, shown, grace=front.grace) as bound:
        yield bound


def _authorization(checks: Checks, service: str) -> grpc.GenericRpcHandler:
    async def check(bodies: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        body = await anext(aiter(bodies), None)
        if body is None:
            await context.abort(grpc.StatusCode.INTERNAL, "the body ends before its message")
        metadata = context.invocation_metadata() or ()
        # If there are two, neither counts: joined, they name no target.
        target = ",".join(str(value) for key, value in metadata if key == TARGET_METADATA)
        if target:
            body = with_context(body, TARGET, target)
        caller = caller_trace(metadata) if checks.traces else NO_TRACE
        return await checks.reply(body, limit=context.time_remaining(), caller=caller)

    # Without serializers the messages stay bytes: the engine reads and writes them. A handler of one message would
    # leave a call that ends before its message without an answer, for as long as its connection lives.
    return grpc.method_handlers_generic_handler(service, {"Check": grpc.stream_unary_rpc_method_handler(check)})
