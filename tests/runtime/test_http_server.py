"""The small HTTP server and the echo origin, over real sockets."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx2
import pytest
from tests.support.certificates import authority, server

from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.servers.http_server import HttpLimits, HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import (
    Address,
    AddressInvalidError,
    AddressTakenError,
    ListenError,
    TcpAddress,
    TlsPaths,
    TlsUnusableError,
    UnixAddress,
    parse_address,
)

HERE: Final = TcpAddress(host="127.0.0.1", port=0)


def _respond(request: HttpRequest) -> HttpResponse:
    if request.target == "/broken":
        raise ZeroDivisionError
    return HttpResponse(status=200, headers=(("x-method", request.method),), body=request.body or b"hello")


@asynccontextmanager
async def _raw(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    assert isinstance(address, TcpAddress)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        async with asyncio.timeout(5):
            yield reader, writer
    finally:
        writer.close()


async def test_a_connection_serves_several_requests() -> None:
    async with serve_http(HERE, _respond) as address, httpx2.AsyncClient(base_url=f"http://{address}") as client:
        replies = [await client.get("/a"), await client.post("/b", content=b"body"), await client.head("/c")]
    assert [(reply.status_code, reply.headers["x-method"], reply.text) for reply in replies] == [
        (200, "GET", "hello"),
        (200, "POST", "body"),
        (200, "HEAD", ""),
    ]


async def test_a_failing_response_is_500_and_the_server_lives() -> None:
    async with serve_http(HERE, _respond) as address, httpx2.AsyncClient(base_url=f"http://{address}") as client:
        assert (await client.get("/broken")).status_code == 500
        assert (await client.get("/")).status_code == 200


REFUSED: Final = {
    "not HTTP": (b"\x16\x03\x01\x02\x00\r\n\r\n", b"HTTP/1.1 400 "),
    "a head that is too large": (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 2000, b"HTTP/1.1 431 "),
    "a body that is too large": (
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n" + b"a" * 2000,
        b"HTTP/1.1 413 ",
    ),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
    "too many headers": (
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x%d: y\r\n" % number for number in range(100)) + b"\r\n",
        b"HTTP/1.1 431 ",
    ),
    "two lengths": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"HTTP/1.1 400 "),
}


@pytest.mark.parametrize(("sent", "want"), REFUSED.values(), ids=REFUSED.keys())
async def test_bad_input_gets_a_status_and_the_end_of_the_connection(sent: bytes, want: bytes) -> None:
    limits = HttpLimits(largest_body=1000, largest_head=1500)
    async with serve_http(HERE, _respond, limits=limits) as address, _raw(address) as (reader, writer):
        writer.write(sent)
        assert (await reader.read()).startswith(want)


SLOW: Final = {
    "nothing": b"",
    "half a head": b"GET / HTT",
    "half a body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\na",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW.keys())
async def test_a_connection_without_a_whole_request_is_closed_in_time(sent: bytes) -> None:
    limits = HttpLimits(patience=0.05, idle=60)
    async with serve_http(HERE, _respond, limits=limits) as address, _raw(address) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(5):
            assert await reader.read() == b""


async def test_a_connection_is_kept_for_the_next_request_and_closed_if_none_comes() -> None:
    limits = HttpLimits(patience=5, idle=0.2)
    async with serve_http(HERE, _respond, limits=limits) as address, _raw(address) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"hello")
        async with asyncio.timeout(4):
            assert await reader.read() == b""


async def test_slow_connections_make_room_for_others_the_oldest_first() -> None:
    limits = HttpLimits(connections=2)
    async with serve_http(HERE, _respond, limits=limits) as address, _raw(address) as (served, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await served.readuntil(b"hello")
        async with _raw(address) as (silent, _), _raw(address) as (other, asks):
            asks.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await other.readuntil(b"hello")
            assert await silent.read() == b"", "it has never sent a request"
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await served.readuntil(b"hello")


async def test_connections_that_are_being_answered_are_not_closed_for_others() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def respond(_request: HttpRequest) -> HttpResponse:
        begun.set()
        await go_on.wait()
        return HttpResponse(status=200)

    async with serve_http(HERE, respond, limits=HttpLimits(connections=1)) as address, _raw(address) as (one, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await begun.wait()
        async with _raw(address) as (other, _):
            assert await other.read() == b""
        go_on.set()
        assert (await one.readline()) == b"HTTP/1.1 200 OK\r\n"


async def test_health_is_answered_while_slow_clients_use_every_connection() -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serve_http(HERE, _respond, limits=HttpLimits(connections=20)))
        for _ in range(100):
            _, writer = await stack.enter_async_context(_raw(address))
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ")
        reader, writer = await stack.enter_async_context(_raw(address))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    async with serve_http(HERE, _respond) as address, _raw(address) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"ok")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_leaving_the_block_closes_open_connections() -> None:
    async with serve_http(HERE, _respond) as address:
        assert isinstance(address, TcpAddress)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"hello")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection(address.host, address.port)


async def test_an_exception_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_http(HERE, _respond):
            raise ZeroDivisionError


async def test_a_taken_port_is_one_sentence() -> None:
    async with serve_http(HERE, _respond) as address:
        with pytest.raises(AddressTakenError, match=rf"^Cannot listen on {address}: .* listens there\."):
            async with serve_http(address, _respond):
                pass


NOT_OURS: Final = {
    "not this machine": (TcpAddress(host="192.0.2.1", port=80), "192.0.2.1:80: Cannot assign requested address"),
    "no folder": (UnixAddress(path="/no/such/a.sock"), "unix:/no/such/a.sock: the folder /no/such does not exist"),
    "a file": (UnixAddress(path=__file__), "the path exists and is not a socket"),
}


@pytest.mark.parametrize(("address", "message"), NOT_OURS.values(), ids=NOT_OURS.keys())
async def test_an_address_that_cannot_be_had_is_one_sentence(address: Address, message: str) -> None:
    with pytest.raises(ListenError, match=message):
        async with serve_http(address, _respond):
            pass


async def test_a_unix_socket_is_served_and_a_dead_one_is_replaced_but_not_a_live_one(tmp_path: Path) -> None:
    address = UnixAddress(path=str(tmp_path / "web.sock"))
    for _ in range(2):
        async with serve_http(address, _respond), _unix(address) as client:
            assert (await client.get("http://x/")).text == "hello"
            with pytest.raises(AddressTakenError, match="another program listens there"):
                async with serve_http(address, _respond):
                    pass
            assert (await client.get("http://x/")).text == "hello"


@pytest.mark.requirement("E22")
async def test_only_its_user_can_open_a_socket_whatever_the_mask_is(tmp_path: Path) -> None:
    address = UnixAddress(path=str(tmp_path / "web.sock"))
    before = os.umask(0)
    try:
        async with serve_http(address, _respond):
            assert os.stat(address.path).st_mode & 0o777 == 0o600  # noqa: PTH116 (a quick look)
    finally:
        os.umask(before)


def _unix(address: UnixAddress) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=address.path))


async def test_the_echo_shows_what_reached_it() -> None:
    async with serve_echo(HERE) as address, httpx2.AsyncClient() as client:
        request = client.build_request("PUT", f"http://{address}/a?b=c", content="é".encode())
        request.headers = httpx2.Headers([("Host", "shop.test"), ("X-T", "1"), ("x-t", "2"), ("Content-Length", "2")])
        reply = await client.send(request)
    assert json.loads(reply.text) == {
        "method": "PUT",
        "path": "/a?b=c",
        "host": "shop.test",
        "headers": [["host", "shop.test"], ["x-t", "1"], ["x-t", "2"], ["content-length", "2"]],
        "body": "é",
    }


ADDRESSES: Final[dict[str, Address]] = {
    "127.0.0.1:9090": TcpAddress(host="127.0.0.1", port=9090),
    ":9090": TcpAddress(host="", port=9090),
    "[::1]:80": TcpAddress(host="::1", port=80),
    "localhost:0": TcpAddress(host="localhost", port=0),
    "unix:/run/a.sock": UnixAddress(path="/run/a.sock"),
    "unix:///run/a.sock": UnixAddress(path="/run/a.sock"),
}


@pytest.mark.parametrize(("text", "want"), ADDRESSES.items())
def test_parse_address(text: str, want: Address) -> None:
    assert parse_address(text) == want


@pytest.mark.parametrize(
    "text", ["", "9090", "localhost", "a:b", "a:-1", "a:65536", "a:٣", "::1:80", "a b:1", "unix:", "unix:/" + "a" * 200]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(AddressInvalidError):
        parse_address(text)


async def test_a_request_that_has_arrived_is_answered_when_the_server_stops_and_an_idle_client_is_not_waited_for() -> (
    None
):
    arrived, go = asyncio.Event(), asyncio.Event()

    async def respond(_: HttpRequest) -> HttpResponse:
        arrived.set()
        await go.wait()
        return HttpResponse(status=204)

    async with asyncio.TaskGroup() as tasks, serve_http(HERE, respond) as address:
        client = httpx2.AsyncClient(base_url=f"http://{address}")
        idle, _writer = await asyncio.open_connection("127.0.0.1", int(str(address).rpartition(":")[2]))
        waiting = tasks.create_task(client.get("/"))
        await arrived.wait()

        async def let_go() -> None:
            async with asyncio.timeout(5):
                assert await idle.read() == b""
            go.set()

        tasks.create_task(let_go())
    assert waiting.result().status_code == 204
    await client.aclose()
    _writer.close()


async def test_a_slow_request_does_not_delay_the_exit() -> None:
    arrived = asyncio.Event()

    async def respond(_: HttpRequest) -> HttpResponse:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        httpx2.AsyncClient() as client,
        asyncio.TaskGroup() as tasks,
        serve_http(HERE, respond, limits=HttpLimits(grace=0.01)) as address,
    ):
        waiting = tasks.create_task(_status(client, f"http://{address}"))
        await arrived.wait()
    assert waiting.result() == 0


async def _status(client: httpx2.AsyncClient, url: str) -> int:
    try:
        return (await client.get(url)).status_code
    except httpx2.RemoteProtocolError:
        return 0


@pytest.fixture
def certificate(tmp_path: Path) -> TlsPaths:
    pair = server("localhost")
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key.reveal())
    return TlsPaths(certificate=str(tmp_path / "crt"), key=str(tmp_path / "key"))


async def test_with_a_certificate_it_speaks_https_with_the_same_limits(certificate: TlsPaths) -> None:
    trusted = ssl.create_default_context(cadata=authority().certificate.decode())
    async with (
        serve_http(HERE, _respond, limits=HttpLimits(largest_body=4), tls=certificate) as address,
        httpx2.AsyncClient(base_url=f"https://{address}", verify=trusted) as client,
    ):
        assert (await client.post("/", content=b"body")).text == "body"
        # The whole answer arrives, though the connection is closed while the client still sends.
        assert (await client.post("/", content=b"a" * 1_000_000)).status_code == 413
        assert (await client.get("/")).status_code == 200


async def test_a_client_that_does_not_finish_its_handshake_is_left(certificate: TlsPaths) -> None:
    async with (
        serve_http(HERE, _respond, limits=HttpLimits(patience=0.1), tls=certificate) as address,
        _raw(address) as (reader, _),
    ):
        assert await reader.read() == b""


async def test_a_certificate_that_cannot_be_used_is_an_error(certificate: TlsPaths) -> None:
    wrong = replace(certificate, key=certificate.certificate)
    with pytest.raises(TlsUnusableError, match="are not a certificate and its private key"):
        async with serve_http(HERE, _respond, tls=wrong):
            pass
