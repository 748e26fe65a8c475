"""Backends with a URL behind the real Envoy: an MCP server of the official SDK, and origins over TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.support.certificates import server
from tests.support.gateways.gateway_api import backend, served
from tests.support.mcp.tool_server import tool_server


@asynccontextmanager
async def secure_origin(folder: Path) -> AsyncGenerator[tuple[int, list[bytes], list[str | None]]]:
    """Serve over TLS as ``localhost`` on every address; keep the heads of requests and the names that TLS asks for."""
    pair = server("localhost")
    (folder / "origin.pem").write_bytes(pair.key.reveal() + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "origin.pem")
    heads: list[bytes] = []
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nin")
        writer.close()

    async with await asyncio.start_server(serve, "0.0.0.0", 0, ssl=context) as listening:
        yield listening.sockets[0].getsockname()[1], heads, names


@pytest.mark.requirement("BU-1")
@pytest.mark.real
async def test_one_address_is_enough_for_an_mcp_server(tmp_path: Path) -> None:
    async with tool_server() as tools, secure_origin(tmp_path) as (port, heads, names):
        documents = [
            backend("tools", f'{{url: "http://127.0.0.1:{tools.port}/mcp"}}'),
            backend("secure", f'{{url: "https://localhost:{port}/deep"}}'),
            backend("misnamed", f'{{url: "https://127.0.0.2:{port}/deep"}}'),
        ]
        async with served(documents, tmp_path, origins=(), decides=False) as it:
            async with (
                httpx2.AsyncClient(timeout=10) as http,
                Client(streamable_http_client(f"{it.url}/default/tools", http_client=http)) as client,
            ):
                result = await client.call_tool("add", {"a": 2, "b": 3})
            verified = await it.client.get(f"{it.url}/default/secure/mcp")
            misnamed = await it.client.get(f"{it.url}/default/misnamed")
    assert result.structured_content == {"result": 5}
    assert tools.called == ["add"]
    assert ("host", f"127.0.0.1:{tools.port}") in tools.headers[-1]
    assert (verified.status_code, verified.text) == (200, "in")
    # The certificate is for localhost: Envoy does not talk to a server that cannot prove the name of the URL.
    assert misnamed.status_code == 503
    # RFC 6066 §3: TLS does not name an address.
    assert names == ["localhost", None]
    [head] = heads
    assert head.startswith(b"GET /deep/mcp HTTP/1.1\r\n")
    assert f"host: localhost:{port}\r\n".encode() in head
