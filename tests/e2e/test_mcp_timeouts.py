"""How long MCP servers may be silent, and how long a request may take to arrive."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from tests.support.gateways.mcp_gateway import McpGateway, mcp_gateway

pytestmark = pytest.mark.real

SHORT = "  unprotectedBackends: Allow\n  contour: {envoy: {timeouts: {requestTimeout: 1s, streamIdleTimeout: 1s}}}"
PREFIX = "io.modelcontextprotocol/"
NEWEST = "2026-07-28"
META = {f"{PREFIX}protocolVersion": NEWEST, f"{PREFIX}clientCapabilities": {}}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
REST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rest", "_meta": META}}
RESTING = {**JSON, "mcp-protocol-version": NEWEST, "mcp-method": "tools/call", "mcp-name": "rest"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
PAUSE = 0.1
"""Between two bytes, in seconds: shorter than any limit."""


async def listen(http: httpx2.AsyncClient, path: str) -> str:
    """Open a stream on which the server says nothing, and return how it ends."""
    begun = await http.post(path, json=INITIALIZE, headers=JSON)
    headers = {"accept": "text/event-stream", "mcp-session-id": begun.headers["mcp-session-id"]}
    try:
        async with http.stream("GET", path, headers=headers) as stream:
            assert stream.status_code == 200
            await stream.aread()
            return "ended"
    except httpx2.TransportError:
        return "cut"


async def test_a_silent_server_is_waited_for_as_long_as_its_backend_says(tmp_path: Path) -> None:
    """The hasty one has what the installation says; a request that has arrived has no limit to be answered in."""
    patient = {"patient": "authplane.dev/idle-timeout: infinity"}
    gateway = mcp_gateway(tmp_path, "", backends=("patient", "hasty"), settings=SHORT, annotations=patient)
    async with gateway as it, it.http_client() as http, asyncio.TaskGroup() as tasks:
        waiting = {
            name: tasks.create_task(http.post(f"/{name}", json=REST, headers=RESTING, timeout=60))
            for name in it.origins
        }
        streams = {name: tasks.create_task(listen(http, f"/{name}")) for name in it.origins}
        assert (await waiting["hasty"]).status_code == 504
        assert await streams["hasty"] == "cut"
        assert not waiting["patient"].done()
        assert not streams["patient"].done()
        it.origins["patient"].rested.set()
        answered = await waiting["patient"]
        assert (answered.status_code, "rested" in answered.text) == (200, True)
        streams["patient"].cancel()


async def drip(it: McpGateway, opening: bytes) -> bytes:
    """Begin a request, send byte after byte, and return what is answered before the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", it.http)
    answer = b""
    try:
        writer.write(opening)
        while True:
            try:
                async with asyncio.timeout(PAUSE):
                    got = await reader.read(4096)
            except TimeoutError:
                writer.write(b"x")
                continue
            answer += got
            if not got or b"\r\n\r\n" in answer:
                return answer
    except ConnectionError:
        return answer
    finally:
        writer.close()


async def test_a_request_that_drips_ends_although_its_backend_waits_for_ever(tmp_path: Path) -> None:
    patient = {"patient": "authplane.dev/idle-timeout: infinity"}
    async with mcp_gateway(tmp_path, "", backends=("patient",), settings=SHORT, annotations=patient) as it:
        head = b"POST /patient HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        async with asyncio.timeout(60):
            body = await drip(it, head + b"content-length: 60000\r\n\r\n{")
            headers = await drip(it, head + b"x-slow: ")
        assert body.startswith(b"HTTP/1.1 408")
        assert headers.startswith(b"HTTP/1.1 408")
