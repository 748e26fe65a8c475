"""Requests to a Kubernetes API server, within limits of time and size.

Errors are a tree: `ApiError` is `ApiUnreachableError` (no answer; a later attempt may get one) or `ApiStatusError` (an
answer in place of the lines of a watch). For a request, the HTTP status is data and not an exception.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urlsplit

import httpcore2

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.runtime.clients.careful_network import CarefulNetwork
from authplane.runtime.issuers.issuer_client import causes
from authplane.runtime.kubernetes.api_credentials import Connection, Credentials, CredentialsError

JSON: Final = "application/json"
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_SHOWN: Final = 300
_FAILURES: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    OSError,
    UnicodeError,
)
_KEEPALIVE: Final = (
    # A machine that has gone without a word is noticed after half a minute, on a silent watch too.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class ApiError(Exception):
    """A request has no usable answer; the message is a sentence for the user."""


class ApiUnreachableError(ApiError):
    """There is no complete answer: the network, TLS, a limit or the credentials are at fault."""


class ApiTooLargeError(ApiUnreachableError):
    """The answer is larger than the limit."""


class ApiStatusError(ApiError):
    """The API server answered with a status other than 200."""

    def __init__(self, response: "ApiResponse") -> None:
        super().__init__(f"The API server answered {response.status}. Check the permissions of this program.")
        self.response = response


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """The whole answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """What one answer may cost."""

    connect: float = 5.0
    read: float = 30.0
    """Seconds between two parts of an answer."""
    total: float = 60.0
    largest: int = 256 * 2**20
    """Bytes of a body."""
    longest_line: int = 16 * 2**20
    """Bytes of one line of a watch."""


class ApiClient:
    """Talks to one API server while its block runs. It follows no redirects and uses no proxy."""

    def __init__(self, credentials: Credentials, limits: ApiLimits | None = None) -> None:
        self.credentials = credentials
        self._limits = limits or ApiLimits()
        self._current: _Pool | None = None

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self.credentials.server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current, self._current = self._current, None
        if current is not None:
            await current.pool.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = _NO_QUERY,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """Return the whole answer, whatever its status; raises `ApiUnreachableError` if there is none in time.

        Credentials that are refused are obtained again, and the request is repeated once.
        """
        sent = _Sent(method, path, query, body, content_type)
        async with self._limited():
            response = await self._exchange(sent, refused=False)
            if response.status == HTTPStatus.UNAUTHORIZED:
                response = await self._exchange(sent, refused=True)
        return response

    def lines(
        self, path: str, *, query: Mapping[str, str] = _NO_QUERY, silence: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the lines of an answer as they come, such as the events of a watch.

        Raises `ApiStatusError` if the status is not 200, and `ApiUnreachableError` if there is no answer, or if it
        breaks off, or after ``silence`` seconds without any data.
        """
        return self._lines(_Sent("GET", path, query, None, JSON), silence)

    @asynccontextmanager
    async def _lines(self, sent: "_Sent", silence: float | None) -> AsyncGenerator[AsyncIterator[bytes]]:
        refused = False
        while True:
            async with self._stream(sent, refused=refused, read=silence) as response:
                if response.status == HTTPStatus.OK:
                    yield self._cut(response)
                    return
                answer = await self._whole(response)
            if answer.status != HTTPStatus.UNAUTHORIZED or refused:
                raise ApiStatusError(answer)
            refused = True

    async def _cut(self, response: httpcore2.Response) -> AsyncIterator[bytes]:
        rest = bytearray()
        with self._described():
            async for part in response.aiter_stream():
                *whole, last = part.split(b"\n")
                for line in whole:
                    if rest:
                        rest += line
                        yield bytes(rest)
                        rest.clear()
                    elif line:
                        yield line
                rest += last
                if len(rest) > self._limits.longest_line:
                    raise self._too_large(self._limits.longest_line)
        if rest:
            yield bytes(rest)

    async def _exchange(self, sent: "_Sent", *, refused: bool) -> ApiResponse:
        async with self._stream(sent, refused=refused, read=self._limits.read) as response:
            return await self._whole(response)

    async def _whole(self, response: httpcore2.Response) -> ApiResponse:
        body = bytearray()
        async for part in response.aiter_stream():
            body += part
            if len(body) > self._limits.largest:
                raise self._too_large(self._limits.largest)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return ApiResponse(status=response.status, headers=headers, body=bytes(body))

    @asynccontextmanager
    async def _stream(self, sent: "_Sent", *, refused: bool, read: float | None) -> AsyncGenerator[httpcore2.Response]:
        with self._described():
            connection = await self.credentials.connection(refused=refused)
            async with (
                self._pool(connection) as pool,
                pool.stream(
                    sent.method,
                    sent.url(connection),
                    headers=sent.headers(connection),
                    content=sent.body,
                    extensions=self._extensions(connection, read),
                ) as response,
            ):
                yield response

    def _extensions(self, connection: Connection, read: float | None) -> dict[str, object]:
        limits = self._limits
        timeouts = {"connect": limits.connect, "read": read, "write": limits.read, "pool": limits.connect}
        named = {"sni_hostname": connection.tls_server_name} if connection.tls_server_name else {}
        return {"timeout": timeouts, **named}

    @asynccontextmanager
    async def _pool(self, connection: Connection) -> AsyncGenerator[httpcore2.AsyncConnectionPool]:
        """Lend the pool of the current certificates; one of older certificates is closed after its last use."""
        if self._current is None or self._current.tls is not connection.tls:
            old, self._current = self._current, _Pool(connection.tls)
            if old is not None and not old.users:
                await old.pool.aclose()
        mine = self._current
        mine.users += 1
        try:
            yield mine.pool
        finally:
            mine.users -= 1
            if not mine.users and mine is not self._current:
                await mine.pool.aclose()

    @asynccontextmanager
    async def _limited(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._limits.total):
                yield
        except TimeoutError:
            raise ApiUnreachableError(
                f"The API server {self.server} did not send a complete answer within {self._limits.total:g} s. "
                "Check its load and the network."
            ) from None

    def _described(self) -> "_Described":
        return _Described(self.server)

    def _too_large(self, most: int) -> ApiTooLargeError:
        return ApiTooLargeError(
            f"The API server {self.server} sent more than {most} bytes. Make the objects of this kind smaller."
        )


class _Pool:
    """Connections that show the same certificate."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.users = 0
        self.pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=8,
            keepalive_expiry=60.0,
            network_backend=CarefulNetwork(httpcore2.AnyIOBackend()),
            socket_options=_KEEPALIVE,
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request, without credentials."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None
    content_type: str

    def url(self, connection: Connection) -> httpcore2.URL:
        server = urlsplit(connection.server)
        target = server.path + self.path + (f"?{urlencode(self.query)}" if self.query else "")
        return httpcore2.URL(scheme=server.scheme, host=server.hostname or "", port=server.port, target=target)

    def headers(self, connection: Connection) -> list[tuple[str, str]]:
        server = urlsplit(connection.server)
        found = [
            ("Host", server.netloc),
            ("Accept", JSON),
            ("Accept-Encoding", "identity"),
            ("User-Agent", "authplane"),
        ]
        if connection.token is not None:
            found.append(("Authorization", f"Bearer {connection.token.reveal()}"))
        if self.body is not None:
            found += [("Content-Type", self.content_type), ("Content-Length", str(len(self.body)))]
        return found


class _Described:
    """Turns the errors of libraries into our own."""

    def __init__(self, server: str) -> None:
        self._server = server

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, CredentialsError):
            raise ApiUnreachableError(str(error)) from error
        if isinstance(error, _FAILURES):
            raise ApiUnreachableError(
                f"The API server {self._server} does not answer: {_why(error)}. Check its address and the network."
            ) from error


def _why(error: BaseException) -> str:
    """Say what the operating system or TLS says; the library's own messages are for programmers."""
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not valid ({shorten(printable(each.verify_message), _SHOWN)})"
    for each in causes(error):
        if isinstance(each, OSError) and each.strerror:
            return shorten(printable(each.strerror), _SHOWN)
    match error:
        case httpcore2.TimeoutException():
            return "no data in time"
        case httpcore2.RemoteProtocolError():
            return "the connection broke off"
        case _:
            return shorten(printable(str(error) or type(error).__name__), _SHOWN)
