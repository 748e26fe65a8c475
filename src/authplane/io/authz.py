"""The authorization server's gRPC front: ``envoy.service.auth.v3.Authorization/Check``."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never

import grpc
import grpc.aio
import structlog

from authplane.io.grpc_server import bind
from authplane.io.health import health_service
from authplane.io.listen import Address, ServerTls, claim
from authplane.io.process import place_of
from authplane.policy.decision import Allow, Deny, Unavailable
from authplane.policy.engine import FAILED, Answer, Backend, answer
from authplane.policy.request import Malformed, Request

SERVICE: Final = "envoy.service.auth.v3.Authorization"

Decided: TypeAlias = Callable[[Answer], None]
"""Told of every decision, after it is made; it cannot change it."""

_log: Final = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthzSettings:
    """How the front listens."""

    address: Address
    tls: ServerTls | None = None
    largest_message: int = 4 * 1024 * 1024
    """In bytes; the call of a larger message fails, and so it is not let through."""
    grace: float = 2.0
    """How many seconds checks in progress have when the server stops."""


def log_decision(made: Answer) -> None:
    """Write one line about a decision; the query string may hold tokens and is left out."""
    match made.request:
        case Request() as request:
            about = {"id": request.id, "method": request.method, "host": request.host, "path": request.path}
        case Malformed(reason=reason):
            about = {"malformed": reason}
        case _:
            assert_never(made.request)
    match made.decision:
        case Allow():
            _log.info("check", decision="allow", **about)
        case Deny(http_status=status, rule=rule):
            _log.info("check", decision="deny", status=status, rule=rule, **about)
        case Unavailable(cause=cause):
            _log.warning("check", decision="unavailable", cause=cause, **about)
        case _:
            assert_never(made.decision)


@asynccontextmanager
async def serve_authz(
    backend: Backend, settings: AuthzSettings, *, decided: Decided = log_decision
) -> AsyncGenerator[Address]:
    """Serve checks while the block runs; yields the address with the port that was really taken.

    Raises a `ListenError` if the address cannot be had.
    """
    claim(settings.address)
    server = grpc.aio.server(
        handlers=[_authorization(backend, decided), health_service([SERVICE])],
        options=[
            # Without this a second server on the same port would get half of the checks.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.largest_message),
        ],
    )
    bound = bind(server, settings.address, settings.tls)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(settings.grace)


def _authorization(backend: Backend, decided: Decided) -> grpc.GenericRpcHandler:
    async def check(body: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return _check(backend, decided, body)

    # Without serializers the messages stay bytes: the engine reads and writes them.
    return grpc.method_handlers_generic_handler(SERVICE, {"Check": grpc.unary_unary_rpc_method_handler(check)})


def _check(backend: Backend, decided: Decided, body: bytes) -> bytes:
    try:
        made = answer(backend, body, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001 (a failed check must become an answer that does not allow)
        _complain("check", error, decision="failed", backend=backend.name)
        return FAILED
    try:
        decided(made)
    except Exception as error:  # noqa: BLE001 (a decision holds even if it cannot be told)
        _complain("decision not recorded", error)
    return made.reply


def _complain(what: str, error: Exception, **more: str) -> None:
    """Log a fault of ours. Whatever goes wrong with the log, the check has its answer."""
    with contextlib.suppress(Exception):
        _log.error(what, error=place_of(error), **more)
