"""One stream to an xDS server, from the first connection attempt to its end."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio

from authplane.core.values import dataclass
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError, Dialer
from authplane.xds.client.client_messages import Request, Response
from authplane.xds.client.wire import parse_response, render_request

_METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
_LAST_WORDS: Final = 1.0
"""Seconds that a channel which cannot connect may take to say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """How long a server may take, in seconds, and how much it may send."""

    connect: float = 20.0
    write: float = 30.0
    """For a server that does not read what it is sent."""
    keepalive: float = 300.0
    """Seconds without data before a keepalive ping; many servers reject more frequent pings."""
    keepalive_answer: float = 20.0
    message_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Receives the events of a stream."""

    opened: Callable[[], None]
    sent: Callable[[Request], None]
    received: Callable[[Response], None]


class AdsStream:
    """Makes one attempt to use a server. Every attempt has its own connection."""

    def __init__(self, dialer: Dialer, listeners: Listeners, limits: StreamLimits, *, agent_version: str) -> None:
        self._dialer = dialer
        self._listeners = listeners
        self._limits = limits
        self._agent_version = agent_version
        self._outbox: asyncio.Queue[Request | None] = asyncio.Queue()

    def send(self, request: Request) -> None:
        """Write a request after those before it."""
        self._outbox.put_nowait(request)

    async def run(self) -> str:
        """Connect, open a stream and keep it; return why it ended."""
        try:
            channel = await self._dialer.open_aio(_options(self._limits))
        except CredentialsUnusableError as error:
            return str(error)
        try:
            why = await self._reach(channel)
            return await self._converse(channel) if why is None else why
        finally:
            self._outbox.put_nowait(None)
            await channel.close()

    async def _reach(self, channel: grpc.aio.Channel) -> str | None:
        """Wait for a connection; returns why there is none."""
        try:
            async with asyncio.timeout(self._limits.connect):
                while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    if state in {grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN}:
                        return await _reason(channel)
                    await channel.wait_for_state_change(state)
        except TimeoutError:
            return f"no connection within {self._limits.connect:g} s"
        return None

    async def _converse(self, channel: grpc.aio.Channel) -> str:
        try:
            async with asyncio.timeout(None) as stall:
                call = _open(channel, _Requests(self._outbox, self._written, stall, self._limits.write, self._render))
                self._listeners.opened()
                while isinstance(data := await call.read(), bytes):
                    response = parse_response(data)
                    if response is None:
                        return "the server sent an invalid discovery response"
                    self._listeners.received(response)
                return _words(await call.code(), await call.details())
        except TimeoutError:
            return f"the server did not read a request within {self._limits.write:g} s"
        except grpc.aio.AioRpcError as error:
            return _words(error.code(), error.details())

    def _written(self, request: Request) -> None:
        self._listeners.sent(request)

    def _render(self, request: Request) -> bytes:
        return render_request(request, self._agent_version)


class _Requests:
    """Passes requests to gRPC, which takes the next one when one is written."""

    def __init__(
        self,
        outbox: asyncio.Queue[Request | None],
        written: Callable[[Request], None],
        stall: asyncio.Timeout,
        limit: float,
        render: Callable[[Request], bytes],
    ) -> None:
        self._outbox = outbox
        self._written = written
        self._stall = stall
        self._limit = limit
        self._render = render
        self._writing: Request | None = None

    def __aiter__(self) -> "_Requests":
        return self

    async def __anext__(self) -> bytes:
        if self._writing is not None:
            self._watch(None)
            self._written(self._writing)
        self._writing = await self._outbox.get()
        if self._writing is None:
            raise StopAsyncIteration
        self._watch(asyncio.get_running_loop().time() + self._limit)
        return self._render(self._writing)

    def _watch(self, until: float | None) -> None:
        try:
            self._stall.reschedule(until)
        except RuntimeError:
            # The stream has ended, so the request is not needed.
            return


def _open(channel: grpc.aio.Channel, requests: _Requests) -> Any:
    method: Any = channel.stream_stream(_METHOD)
    return method(requests)


async def _reason(channel: grpc.aio.Channel) -> str:
    """Return why a channel cannot connect; grpcio reports it only to calls."""
    call: Any = channel.stream_stream(_METHOD)()
    try:
        async with asyncio.timeout(_LAST_WORDS):
            return _words(await call.code(), await call.details())
    except TimeoutError:
        return "the server is unreachable"
    finally:
        call.cancel()


def _words(code: grpc.StatusCode, details: str | None) -> str:
    return f"{code.name}: {details}" if details else code.name


def _options(limits: StreamLimits) -> tuple[tuple[str, Any], ...]:
    return (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.keepalive_time_ms", int(limits.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", int(limits.keepalive_answer * 1000)),
        ("grpc.max_receive_message_length", limits.message_bytes),
    )
