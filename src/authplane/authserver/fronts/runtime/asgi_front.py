"""The authorization service as an ASGI application: gRPC over HTTP/2.

HTTP checks are never served on the same port: gRPC answers with the HTTP status 200, which an HTTP check takes for
"allow", and a client can choose the path and the content type of a check.
"""

import re
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from authplane.authserver.engine.wire import with_context
from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.authserver.fronts.runtime.asgi_bodies import (
    ROOM,
    Bodies,
    Message,
    NoRoom,
    Receive,
    unless_left,
    whole_body,
)
from authplane.authserver.records.runtime.traces import NO_TRACE, caller_trace
from authplane.core.values import dataclass
from authplane.policy.check.check_context import TARGET, TARGET_METADATA
from authplane.runtime.servers.health_check import HealthFault, check_health
from authplane.runtime.servers.service_names import SERVICES

Scope: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_CHECKS: Final = frozenset(f"/{service}/Check".encode("ascii") for service in SERVICES)
_HEALTH: Final = b"/grpc.health.v1.Health/Check"
_METHODS: Final = _CHECKS | {_HEALTH}
_TYPES: Final = frozenset({b"application/grpc", b"application/grpc+proto"})
_FAMILY: Final = b"application/grpc"
_TARGET: Final = TARGET_METADATA.encode("ascii")

_RESOURCE_EXHAUSTED: Final = 8
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13

_FRAME: Final = struct.Struct(">BI")
"""One byte that says whether the message is compressed, and four with its length."""
_PREFIX: Final = _FRAME.size
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

_BEGIN: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity")],
    "trailers": True,
}
_OK: Final[Message] = {
    "type": "http.response.trailers",
    "headers": [(b"grpc-status", b"0")],
    "more_trailers": False,
}


class Application(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, /) -> None:
        """Serve one request."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call has no reply: a gRPC status."""

    code: int
    message: str


_NO_ROOM: Final = Refusal(_RESOURCE_EXHAUSTED, "too many large messages at the same time")
_NO_OTHERS: Final[Mapping[bytes, Application]] = MappingProxyType({})


class GrpcApplication:
    """Serves ``Authorization/Check`` and ``Health/Check``; ``others`` serve the calls of their paths."""

    def __init__(
        self,
        checks: Checks,
        *,
        largest_message: int = 4 * 1024 * 1024,
        serving: Callable[[], bool] = lambda: True,
        others: Mapping[bytes, Application] = _NO_OTHERS,
        room: int = ROOM,
    ) -> None:
        self._checks = checks
        self._largest = largest_message
        self._bodies = Bodies(largest=largest_message + _PREFIX, room=room)
        self._serving = serving
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        path = scope["raw_path"]
        kind, patience, target = _about(scope["headers"])
        if path not in _METHODS or kind not in _TYPES or scope["method"] != "POST" or scope["http_version"] != "2":
            fault = _fault(scope, path, kind)
            await (_plain(send, fault) if fault else self._others.get(path, _unknown)(scope, receive, send))
            return
        limit = None if patience is None else _limit(patience)
        if isinstance(limit, Refusal):
            await _refuse(send, limit)
            return
        first = await receive()
        body: bytes | NoRoom | None = whole_body(first)
        if body is None:
            body = await self._bodies.read_on(first, receive)
            if body is None:
                return
        message = _NO_ROOM if isinstance(body, NoRoom) else parse_frame(body, self._largest)
        if target and isinstance(message, bytes):
            message = with_context(message, TARGET, target.decode("latin-1"))
        reply = self._reply(scope, message, limit)
        if not isinstance(reply, (bytes, Refusal)):
            found = await unless_left(reply, receive)
            if found is None:
                return
            reply = found
        if isinstance(reply, Refusal):
            await _refuse(send, reply)
            return
        await send(_BEGIN)
        framed = _FRAME.pack(0, len(reply)) + reply
        await send({"type": "http.response.body", "body": framed, "more_body": False})
        await send(_OK)

    def _reply(
        self, scope: Scope, message: bytes | Refusal, limit: float | None
    ) -> bytes | Refusal | Coroutine[None, None, bytes]:
        """Answer the only message of a call, at once unless there is something to wait for."""
        if isinstance(message, Refusal):
            return message
        if scope["raw_path"] == _HEALTH:
            reply = check_health(message, SERVICES, serving=self._serving())
            return Refusal(*reply) if isinstance(reply, HealthFault) else reply
        caller = caller_trace(_texts(scope["headers"])) if self._checks.traces else NO_TRACE
        return self._checks.begin(message, limit=limit, caller=caller)


async def _unknown(_scope: Scope, _receive: Receive, send: Send) -> None:
    await _refuse(send, Refusal(_UNIMPLEMENTED, "unknown method"))


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str | bytes]]:
    return [(name.decode("latin-1"), value) for name, value in headers]


def parse_frame(body: bytes, largest: int) -> bytes | Refusal:
    """Take the one message out of a gRPC body."""
    if len(body) < _PREFIX:
        return Refusal(_INTERNAL, "the body ends before its message")
    compressed, size = _FRAME.unpack_from(body)
    if compressed:
        known = compressed == 1
        return Refusal(_UNIMPLEMENTED, "compression is not supported") if known else Refusal(_INTERNAL, "invalid frame")
    if size > largest:
        return Refusal(_RESOURCE_EXHAUSTED, f"the message is larger than {largest} bytes")
    if len(body) != size + _PREFIX:
        end = "before its message does" if len(body) < size + _PREFIX else "later than its message"
        return Refusal(_INTERNAL, f"the body ends {end}")
    return body[_PREFIX:]


def _about(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bytes | None, bytes]:
    """Return the content type and the timeout of a call, and the target of the check if a header names it."""
    kind, timeout, target = b"", None, b""
    for name, value in headers:
        if name == b"content-type":
            kind = value
        elif name == b"grpc-timeout":
            timeout = value
        elif name == _TARGET:
            # If there are two, neither counts: joined, they name no target.
            target = target + b"," + value if target else value
    return kind, timeout, target


def _fault(scope: Scope, path: bytes, kind: bytes) -> int:
    """Return the HTTP status for what is no gRPC call, or 0."""
    if path not in _METHODS and not kind.startswith(_FAMILY):
        return 404
    if scope["method"] != "POST":
        return 405
    if kind not in _TYPES:
        return 415
    # HTTP/1.1 has no trailers that a gRPC client would read.
    return 0 if scope["http_version"] == "2" else 505


def _limit(timeout: bytes) -> float | Refusal:
    parts = _TIMEOUT.fullmatch(timeout)
    return int(parts[1]) * _SECONDS[parts[2]] if parts else Refusal(_INTERNAL, "malformed grpc-timeout")


async def _plain(send: Send, status: int) -> None:
    headers = [(b"allow", b"POST")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send, refusal: Refusal) -> None:
    await send(_BEGIN)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    status = [(b"grpc-status", b"%d" % refusal.code), (b"grpc-message", refusal.message.encode("ascii"))]
    await send({"type": "http.response.trailers", "headers": status, "more_trailers": False})
