"""One client for pages of programs near by: over TCP and unix sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from authplane.runtime.clients.ask_page import NotAnsweredError, Reply, ask, ask_page
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

HERE = TcpAddress(host="127.0.0.1", port=0)


def respond(request: HttpRequest) -> HttpResponse:
    said = f"{request.method} {request.target} {request.header('host')}"
    return HttpResponse(status=404 if request.target == "/none" else 200, body=said.encode() + b"\xff")


@asynccontextmanager
async def talker(said: bytes) -> AsyncIterator[Address]:
    """Serve what may not be HTTP: whoever connects is told it, or nothing at all."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All of the request is read: what is closed with something unread is reset, and the answer may be lost.
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        if not said:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(tell, "127.0.0.1", 0)
    async with server:
        yield TcpAddress(host="127.0.0.1", port=server.sockets[0].getsockname()[1])


async def test_a_page_is_fetched_over_a_unix_socket_and_over_tcp(tmp_path: Path) -> None:
    async with serve_http(UnixAddress(path=str(tmp_path / "s")), respond) as address:
        assert await ask(address, "/a?b=^c$") == Reply(200, b"GET /a?b=^c$ authplane\xff")
        assert (await ask(address, "/none", method="POST")).status == 404
        assert (await ask(address, "/a")).body == "GET /a authplane\ufffd"
    async with serve_http(HERE, respond) as address:
        assert await asyncio.to_thread(ask_page, address, "/a") == f"GET /a {address}".encode() + b"\xff"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (TcpAddress(host="127.0.0.1", port=1), "does not answer: Connection refused"),
        (UnixAddress(path="/no/such/socket"), "does not answer: No such file or directory"),
    ],
)
def test_a_server_that_is_not_there_is_an_error(address: Address, why: str) -> None:
    with pytest.raises(NotAnsweredError) as caught:
        ask_page(address, "/")
    assert str(caught.value) == why


@pytest.mark.slow
async def test_a_server_that_gives_no_page_is_an_error() -> None:
    async def why(address: Address) -> str:
        with pytest.raises(NotAnsweredError) as caught:
            await asyncio.to_thread(ask_page, address, "/none", limit=0.5)
        return str(caught.value)

    async with serve_http(HERE, respond) as address:
        assert await why(address) == "answered 404"
    async with talker(b"SSH-2.0-x\r\n\r\n") as address:
        assert await why(address) == "does not answer: the response is not HTTP"
    async with talker(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort") as address:
        assert await why(address) == "does not answer: the response is not HTTP"
    async with talker(b"") as address:
        assert await why(address) == "did not answer within 0.5 s"


@pytest.mark.slow
async def test_no_more_is_kept_than_64_mb() -> None:
    async with serve_http(HERE, lambda _: HttpResponse(status=200, body=bytes(64 * 1024 * 1024 + 1))) as address:
        with pytest.raises(NotAnsweredError, match="answered with more than 67108864 bytes"):
            await asyncio.to_thread(ask_page, address, "/", limit=60)
