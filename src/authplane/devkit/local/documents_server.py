"""Publishes a few documents over HTTPS: for trying things out, not for crowds."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, TypeAlias

import h11

from authplane.runtime.child_processes import owned_tasks
from authplane.runtime.servers.listen import AddressTakenError, TcpAddress, TlsPaths, TlsUnusableError, claim

Documents: TypeAlias = Mapping[str, bytes]
"""JSON texts by path."""

_LARGEST_HEAD: Final = 16 * 1024
_PATIENCE: Final = 10.0
_MOST_AT_ONCE: Final = 100


@asynccontextmanager
async def serve_documents(
    address: TcpAddress, documents: Callable[[TcpAddress], Documents], tls: TlsPaths
) -> AsyncGenerator[TcpAddress]:
    """Serve while the block runs; yields the address with the port that was really taken, as ``documents`` gets it.

    Raises a `ListenError` if the address cannot be had or the certificate cannot be used.
    """
    claim(address)
    context = _context(tls)
    async with owned_tasks() as tasks:
        open_now: set[asyncio.Task[None]] = set()
        published: dict[str, bytes] = {}

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(open_now) >= _MOST_AT_ONCE:
                writer.close()
                return
            task = tasks.create_task(_serve(reader, writer, published))
            open_now.add(task)
            task.add_done_callback(open_now.discard)

        try:
            server = await asyncio.start_server(
                accept, address.host or None, address.port, ssl=context, limit=_LARGEST_HEAD, start_serving=False
            )
        except OSError as error:
            raise AddressTakenError(f"cannot listen on {address}: {error.strerror}") from error
        try:
            bound = TcpAddress(host=address.host, port=server.sockets[0].getsockname()[1])
            published.update(documents(bound))
            await server.start_serving()
            yield bound
        finally:
            server.close()
            for task in open_now:
                task.cancel()


def _context(tls: TlsPaths) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise TlsUnusableError(f"{tls.certificate} and {tls.key} are not a certificate and its private key") from error
    return context


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, documents: Documents) -> None:
    """Answer one request; the connection ends after it."""
    try:
        async with asyncio.timeout(_PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_answer(head, documents))
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, h11.ProtocolError):
        pass  # the client went away, took too long, or does not speak HTTP: nothing can be told to it
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


def _answer(head: bytes, documents: Documents) -> bytes:
    http = h11.Connection(h11.SERVER)
    http.receive_data(head)
    request = http.next_event()
    if not isinstance(request, h11.Request):
        return b""
    status, body = HTTPStatus.OK, documents.get(request.target.decode("latin-1").partition("?")[0])
    if body is None:
        status, body = HTTPStatus.NOT_FOUND, b"{}"
    if request.method not in {b"GET", b"HEAD"}:
        status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"{}"
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("cache-control", "max-age=60"),
        ("connection", "close"),
    ]
    reason = status.phrase.encode("ascii")
    parts: list[h11.Event] = [h11.Response(status_code=status, headers=headers, reason=reason)]
    if request.method != b"HEAD":
        parts.append(h11.Data(data=body))
    return b"".join(http.send(part) or b"" for part in (*parts, h11.EndOfMessage()))
