"""A small HTTP/1.1 server: one function from request to response."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import responses
from typing import Final, TypeAlias, assert_never

import h11
import structlog

from authplane.core.values import dataclass
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.servers.listen import (
    Address,
    AddressTakenError,
    TcpAddress,
    TlsPaths,
    TlsUnusableError,
    UnixAddress,
    claim,
)

_log: Final = structlog.stdlib.get_logger()

_CHUNK: Final = 64 * 1024
_LINGER: Final = 1.0
"""Seconds that a client may go on sending after its request was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A whole request."""

    method: str
    target: str
    """Path and query as received."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the first value of a header, or an empty string; ``name`` is in lower case."""
        return next((value for each, value in self.headers if each == name), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A whole response. The server adds the length."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Respond: TypeAlias = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of a server and its connections."""

    largest_body: int = 1024 * 1024
    largest_head: int = 64 * 1024
    """Bytes of the request line and all headers."""
    most_headers: int = 100
    patience: float = 10.0
    """Maximum seconds to receive a request, and to send a response."""
    idle: float = 60.0
    """Maximum seconds between a response and the next request of a connection."""
    connections: int = 1000
    """Maximum open connections. Beyond it, the server closes an idle one: first those that never sent a request."""
    grace: float = 2.0
    """Seconds for pending responses when the server stops."""


_LIMITS: Final = HttpLimits()


@asynccontextmanager
async def serve_http(
    address: Address, respond: Respond, *, limits: HttpLimits = _LIMITS, tls: TlsPaths | None = None
) -> AsyncGenerator[Address]:
    """Serve while the block runs, over HTTPS with ``tls``; yields the address with the port that was really taken.

    Raises a `ListenError` if the address is taken or the certificate is not usable. If ``respond`` raises, the server
    logs the error and responds with 500.
    """
    claim(address)
    context = None if tls is None else _context(tls)
    async with owned_tasks() as tasks:
        open_now: dict[asyncio.Task[None], _Connection] = {}

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(open_now) >= limits.connections and not _make_room(open_now):
                writer.close()
                return
            connection = _Connection(reader, writer, respond, limits)
            task = tasks.create_task(connection.serve())
            open_now[task] = connection
            task.add_done_callback(open_now.pop)

        server = await _listen(address, accept, context, limits)
        try:
            yield _bound(address, server)
        finally:
            server.close()
            await _finish(open_now, limits.grace)


def _make_room(connections: "Mapping[asyncio.Task[None], _Connection]") -> bool:
    """Close the idle connection that is needed least; returns False if all connections have a pending response.

    A client with many slow connections must not lock out other clients.
    """
    waiting = [(each.served > 0, task) for task, each in connections.items() if not each.answering and not each.ended]
    if not waiting:
        return False
    # The mapping is in order of age, so this picks the oldest.
    _, task = min(waiting, key=lambda each: each[0])
    connections[task].ended = True
    task.cancel()
    return True


async def _finish(connections: "Mapping[asyncio.Task[None], _Connection]", grace: float) -> None:
    """Close all connections. Pending responses have ``grace`` seconds."""
    answering = []
    for task, connection in connections.items():
        if connection.finish():
            answering.append(task)
        else:
            task.cancel()
    if answering:
        for late in (await asyncio.wait(answering, timeout=grace))[1]:
            late.cancel()


Accept: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


def _context(tls: TlsPaths) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise TlsUnusableError(
            f"{tls.certificate} and {tls.key} are not a certificate and its private key."
            " Use PEM files that belong together."
        ) from error
    return context


async def _listen(
    address: Address, accept: Accept, context: ssl.SSLContext | None, limits: HttpLimits
) -> asyncio.Server:
    handshake = None if context is None else limits.patience
    try:
        match address:
            case TcpAddress(host=host, port=port):
                return await asyncio.start_server(
                    accept, host or None, port, ssl=context, ssl_handshake_timeout=handshake
                )
            case UnixAddress(path=path):
                server = await asyncio.start_unix_server(accept, path, ssl=context, ssl_handshake_timeout=handshake)
                os.chmod(path, 0o600)  # noqa: PTH101 (of a socket that was just made: it takes no time)
                return server
            case _:
                assert_never(address)
    except OSError as error:
        raise AddressTakenError(address, error.strerror or "") from error


def _bound(address: Address, server: asyncio.Server) -> Address:
    match address:
        case TcpAddress(host=host):
            return TcpAddress(host=host, port=server.sockets[0].getsockname()[1])
        case UnixAddress():
            return address
        case _:
            assert_never(address)


class _RefusedError(Exception):
    """The request cannot be served; the connection ends after the status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Connection:
    """One client, until it leaves, is idle for too long or sends what is not HTTP."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond, limits: HttpLimits
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._respond = respond
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.largest_head)
        self._last = False
        self.answering = False
        self.served = 0
        """How many requests were answered."""
        self.ended = False
        """Whether it was cancelled and is about to close."""

    async def serve(self) -> None:
        """Answer requests one after the other."""
        try:
            while await self._exchange() and not self._last:
                self._http.start_next_cycle()
        except (OSError, TimeoutError, h11.ProtocolError):
            pass  # the client left, took too long, or does not speak HTTP: it cannot get an answer
        except Exception as error:  # noqa: BLE001 (one connection must not end the server)
            _log.error("connection failed", error=place_of(error))
        finally:
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()

    def finish(self) -> bool:
        """End after the answer that is being made, if there is one; tell whether there is."""
        self._last = True
        return self.answering

    async def _exchange(self) -> bool:
        """Serve one request; tell whether another may follow."""
        try:
            if not await self._begins():
                return False
            async with asyncio.timeout(self._limits.patience):
                request = await self._request()
        except _RefusedError as refused:
            await self._refuse(refused.status)
            return False
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        if request is None:
            return False
        self.answering = True
        async with asyncio.timeout(self._limits.patience):
            await self._send(await _responded(self._respond, request), without_body=request.method == "HEAD")
        self.answering = False
        self.served += 1
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _begins(self) -> bool:
        """Wait for the first bytes of a request; returns False if the client closed the connection."""
        if self._http.trailing_data[0]:
            return True
        async with asyncio.timeout(self._limits.idle if self.served else self._limits.patience):
            data = await self._reader.read(_CHUNK)
        self._http.receive_data(data)
        return bool(data)

    async def _request(self) -> HttpRequest | None:
        """Read a whole request; None if the client closed the connection."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        if len(head.headers) > self._limits.most_headers:
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in head.headers}:
            # A proxy in front may use the other header to find the end of the body (request smuggling).
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        body = bytearray()
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += event.data
            if len(body) > self._limits.largest_body:
                raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return HttpRequest(
            method=head.method.decode("ascii"),
            target=head.target.decode("latin-1"),
            headers=tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers),
            body=bytes(body),
        )

    async def _event(self) -> h11.Event | None:
        """Return the next event of the request; None at the end of the connection."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_CHUNK))
        return event if isinstance(event, h11.Event) else None

    async def _refuse(self, status: int) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            async with asyncio.timeout(self._limits.patience):
                await self._send(HttpResponse(status=status, headers=(("connection", "close"),)), without_body=False)
                await self._linger()

    async def _linger(self) -> None:
        """Read for a while: closing the connection while the client sends would discard our response."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER):
                if self._writer.can_write_eof():  # TLS cannot close one direction
                    self._writer.write_eof()
                while await self._reader.read(_CHUNK):
                    pass

    async def _send(self, response: HttpResponse, *, without_body: bool) -> None:
        headers = [*response.headers, ("content-length", str(len(response.body)))]
        reason = responses.get(response.status, "").encode("ascii")
        self._write(h11.Response(status_code=response.status, headers=headers, reason=reason))
        if not without_body:
            self._write(h11.Data(data=response.body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")


async def _responded(respond: Respond, request: HttpRequest) -> HttpResponse:
    try:
        response = respond(request)
        return response if isinstance(response, HttpResponse) else await response
    except Exception as error:  # noqa: BLE001 (a failing page must not close the connection without a response)
        path = request.target.partition("?")[0]
        _log.error("request failed", method=request.method, path=path, error=place_of(error))
        return HttpResponse(status=500)
