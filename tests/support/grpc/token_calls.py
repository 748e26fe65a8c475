"""Calls of every kind to a server that tells which tokens came, on both kinds of channels."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import grpc.aio
from tests.support import certificates

OPTIONS = (("grpc.ssl_target_name_override", "localhost"),)
LIMIT = 5.0


@dataclass
class Server:
    """A server on a TLS port and one without; answers each call with its token."""

    secure: str
    open: str
    seen: list[str] = field(default_factory=list)
    accepts: Callable[[str], bool] = lambda _: True
    """Judges what came; calls that it does not accept end with UNAUTHENTICATED."""

    @property
    def trust(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(certificates.authority().certificate)


def _sent(context: grpc.ServicerContext) -> str:
    return ",".join(str(value) for key, value in context.invocation_metadata() if key in {"authorization", "x-also"})


@contextmanager
def serving(*, client_ca: bytes | None = None) -> Iterator[Server]:
    made = Server("", "")

    def one(_: object, context: grpc.ServicerContext) -> bytes:
        made.seen.append(_sent(context))
        if not made.accepts(made.seen[-1]):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the signature is wrong")
        return made.seen[-1].encode()

    def many(request: object, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield one(request, context)

    def drained(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return one(list(requests), context)

    def drained_to_many(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        yield one(list(requests), context)

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "UnaryUnary": grpc.unary_unary_rpc_method_handler(one),
        "UnaryStream": grpc.unary_stream_rpc_method_handler(many),
        "StreamUnary": grpc.stream_unary_rpc_method_handler(drained),
        "StreamStream": grpc.stream_stream_rpc_method_handler(drained_to_many),
    }
    server = grpc.server(ThreadPoolExecutor(8), handlers=[grpc.method_handlers_generic_handler("test.Echo", handlers)])
    pair = certificates.server("localhost")
    credentials = grpc.ssl_server_credentials(
        [(pair.key.reveal(), pair.certificate)], client_ca, require_client_auth=client_ca is not None
    )
    made.secure = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    made.open = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield made
    finally:
        server.stop(None).wait(LIMIT)


class Outcome(NamedTuple):
    """How a call ended."""

    code: grpc.StatusCode
    text: str


def refused(error: grpc.RpcError) -> Outcome:
    return Outcome(error.code(), error.details() or "")


def _unary_unary(channel: Any, **options: Any) -> bytes:
    reply: bytes = channel.unary_unary("/test.Echo/UnaryUnary")(b"", **options)
    return reply


def _future(channel: Any, **options: Any) -> bytes:
    reply: bytes = channel.unary_unary("/test.Echo/UnaryUnary").future(b"", **options).result()
    return reply


def _unary_stream(channel: Any, **options: Any) -> bytes:
    return b"".join(channel.unary_stream("/test.Echo/UnaryStream")(b"", **options))


def _stream_unary(channel: Any, **options: Any) -> bytes:
    reply: bytes = channel.stream_unary("/test.Echo/StreamUnary")(iter((b"", b"")), **options)
    return reply


def _stream_stream(channel: Any, **options: Any) -> bytes:
    return b"".join(channel.stream_stream("/test.Echo/StreamStream")(iter((b"", b"")), **options))


KINDS: dict[str, Callable[..., bytes]] = {
    "unary": _unary_unary,
    "unary as a future": _future,
    "server streaming": _unary_stream,
    "client streaming": _stream_unary,
    "streaming both ways": _stream_stream,
}


def outcome(kind: str, channel: grpc.Channel, **options: Any) -> Outcome:
    """Make a call and tell how it ended."""
    try:
        return Outcome(grpc.StatusCode.OK, KINDS[kind](channel, **({"timeout": LIMIT} | options)).decode())
    except grpc.RpcError as error:
        return refused(error)


async def _requests() -> AsyncIterator[bytes]:
    yield b""
    yield b""


async def _aio_call(kind: str, channel: Any, **options: Any) -> bytes:
    match kind:
        case "unary":
            reply: bytes = await channel.unary_unary("/test.Echo/UnaryUnary")(b"", **options)
            return reply
        case "server streaming":
            return b"".join([each async for each in channel.unary_stream("/test.Echo/UnaryStream")(b"", **options)])
        case "client streaming":
            whole: bytes = await channel.stream_unary("/test.Echo/StreamUnary")(_requests(), **options)
            return whole
        case _:
            call = channel.stream_stream("/test.Echo/StreamStream")(_requests(), **options)
            return b"".join([each async for each in call])


AIO_KINDS = ("unary", "server streaming", "client streaming", "streaming both ways")


async def aio_outcome(kind: str, channel: grpc.aio.Channel, **options: Any) -> Outcome:
    """Make a call and tell how it ended."""
    try:
        reply = await asyncio.wait_for(_aio_call(kind, channel, **({"timeout": LIMIT} | options)), LIMIT)
        return Outcome(grpc.StatusCode.OK, reply.decode())
    except grpc.RpcError as error:
        return refused(error)


def aio_channel(
    server: Server, interceptors: Sequence[grpc.aio.ClientInterceptor], *, plain: bool = False
) -> grpc.aio.Channel:
    if plain:
        return grpc.aio.insecure_channel(server.open, interceptors=interceptors)
    return grpc.aio.secure_channel(server.secure, server.trust, OPTIONS, interceptors=interceptors)
