"""An MCP server with a few tools, to try policies with; made with the official SDK.

``python -m authplane.devkit.local.sample_tools 127.0.0.1:9082`` serves it below ``/mcp``: a program of its own, since
the SDK takes longer to load than all of authplane.
"""

import sys
from typing import Final

from mcp.server import MCPServer

from authplane.runtime.servers.listen import TcpAddress, parse_address

_NOTES: Final = {"welcome": "Tools are called through the gateway.", "draft": "Not finished."}


def serve_sample_tools(address: TcpAddress) -> None:
    """Serve until the program is stopped."""
    # Without sessions, so that a single curl line is a whole conversation.
    build_sample_tools().run(
        "streamable-http", host=address.host or "127.0.0.1", port=address.port, stateless_http=True, json_response=True
    )


def build_sample_tools() -> MCPServer:
    """Make the server: two tools that look, one that computes, one that destroys."""
    server = MCPServer("notes", version="1", log_level="WARNING")
    notes = dict(_NOTES)

    @server.tool()
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.tool()
    def list_notes() -> list[str]:
        """Name all notes."""
        return sorted(notes)

    @server.tool()
    def read_note(name: str) -> str:
        """Return the text of a note."""
        return notes.get(name, "there is no such note")

    @server.tool()
    def delete_note(name: str) -> str:
        """Delete a note for good."""
        return "deleted" if notes.pop(name, None) is not None else "there is no such note"

    return server


if __name__ == "__main__":
    parsed = parse_address(sys.argv[1])
    if not isinstance(parsed, TcpAddress):
        sys.exit("tools are served on a host and a port")
    serve_sample_tools(parsed)
