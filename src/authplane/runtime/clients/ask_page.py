"""Fetches one page of a program, here or on a reachable machine: over TCP or a unix socket, without TLS."""

import asyncio
import os
from http import HTTPStatus
from typing import Final, assert_never

import httpcore2

from authplane.core.values import dataclass
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

_LARGEST: Final = 64 * 1024 * 1024


class NotAnsweredError(Exception):
    """There is no page; the message continues a sentence about the server."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    content: bytes

    @property
    def body(self) -> str:
        """The content as text."""
        return self.content.decode(errors="replace")


class _TooLargeError(ConnectionError):
    """The server sends more than we keep."""


async def ask(address: Address, target: str, *, method: str = "GET", limit: float = 5.0) -> Reply:
    """Return the whole reply of a server; raises OSError or TimeoutError if there is none."""
    try:
        async with asyncio.timeout(limit), _pool(address) as pool:
            url = httpcore2.URL(scheme="http", host=_host(address), port=_port(address), target=target)
            async with pool.stream(method, url, headers=[("content-length", "0")]) as response:
                return Reply(response.status, await _body(response))
    except (httpcore2.NetworkError, httpcore2.RemoteProtocolError) as error:
        raise ConnectionError(_cause(error)) from error


def ask_page(address: Address, target: str, *, limit: float = 5.0) -> bytes:
    """Return a page of a server; raises `NotAnsweredError` if the server does not send it within ``limit`` seconds.

    For programs without an event loop: do not call it where one runs.
    """
    try:
        reply = asyncio.run(ask(address, target, limit=limit))
    except TimeoutError as error:
        raise NotAnsweredError(f"did not answer within {limit:g} s") from error
    except _TooLargeError as error:
        raise NotAnsweredError(str(error)) from None
    except OSError as error:
        raise NotAnsweredError(f"does not answer: {error}") from error
    if reply.status != HTTPStatus.OK:
        raise NotAnsweredError(f"answered {reply.status}")
    return reply.content


def _pool(address: Address) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(uds=address.path if isinstance(address, UnixAddress) else None)


async def _body(response: httpcore2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_stream():
        body += part
        if len(body) > _LARGEST:
            raise _TooLargeError(f"answered with more than {_LARGEST} bytes")
    return bytes(body)


def _host(address: Address) -> str:
    match address:
        case TcpAddress(host=host):
            return host or "127.0.0.1"
        case UnixAddress():
            return "authplane"
        case _:
            assert_never(address)


def _port(address: Address) -> int | None:
    return address.port if isinstance(address, TcpAddress) else None


def _cause(error: BaseException) -> str:
    """Return the error of the operating system; the library's own messages are for programmers."""
    if isinstance(error, httpcore2.RemoteProtocolError):
        return "the response is not HTTP"
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, BaseExceptionGroup):
            below = below.exceptions[0]
        if isinstance(below, OSError) and below.errno:
            # An event loop writes its own sentence; the number of an unknown host name is negative.
            return os.strerror(below.errno) if below.errno > 0 else below.strerror or "host name not found"
        below = below.__cause__ or below.__context__
    return "connection failed"
