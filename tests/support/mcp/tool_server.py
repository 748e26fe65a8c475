"""An MCP server made with the official SDK, in this process."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from tests.support.eventually import eventually


@dataclass
class ToolServer:
    """A running server and what it was asked to do."""

    name: str
    port: int = 0
    called: list[str] = field(default_factory=list)
    rested: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the tool ``rest`` answer."""
    headers: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    """What each HTTP request came with."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the tests."""
        yield


@asynccontextmanager
async def tool_server(name: str = "shop") -> AsyncGenerator[ToolServer]:
    """Serve a few tools with sessions and event streams, as the SDK does if nothing else is said."""
    made = ToolServer(name)
    app = _server(made).streamable_http_app()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            made.headers.append(tuple((name.decode(), value.decode("latin-1")) for name, value in scope["headers"]))
        await app(scope, receive, send)

    server = _Server(uvicorn.Config(noting, host="127.0.0.1", port=0, log_level="error", ws="none"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())

        async def started() -> bool:
            return server.started

        await eventually(started)
        made.port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            server.should_exit = True
            server.force_exit = True


def _server(made: ToolServer) -> MCPServer:
    server = MCPServer(made.name, version="1", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        made.called.append("add")
        return a + b

    @server.tool()
    def read_file(path: str) -> str:
        """Read a file."""
        made.called.append("read_file")
        return f"content of {path}"

    @server.tool()
    def wipe() -> str:
        """Destroy everything."""
        made.called.append("wipe")
        return "gone"

    @server.tool()
    def origin() -> str:
        """Say who answers."""
        made.called.append("origin")
        return made.name

    @server.tool()
    async def rest() -> str:
        """Say nothing until somebody says so."""
        made.called.append("rest")
        await made.rested.wait()
        return "rested"

    @server.tool()
    def headers(context: Context) -> list[str]:
        """Name the headers that reached the server."""
        made.called.append("headers")
        request = context.request_context.request
        return sorted(request.headers) if request is not None else []

    return server
