"""An MCP server with sample tools, built with the official SDK.

``python -m authplane.devkit.local.sample_tools 127.0.0.1:9082`` serves it at ``/mcp``. It is a separate program,
because the SDK takes longer to load than all of authplane.
"""

import sys
from typing import Final

from mcp.server import MCPServer

from authplane.runtime.servers.listen import TcpAddress, parse_address

_NOTES: Final = {"welcome": "Clients call these tools through the gateway.", "draft": "Not finished."}


def serve_sample_tools(address: TcpAddress) -> None:
    """Serve until the program is stopped."""
    # Without sessions, a single curl command is a complete call.
    build_sample_tools().run(
        "streamable-http", host=address.host or "127.0.0.1", port=address.port, stateless_http=True, json_response=True
    )


def build_sample_tools() -> MCPServer:
    """Build the server: two tools that read, one that computes, one that deletes."""
    server = MCPServer("notes", version="1", log_level="WARNING")
    notes = dict(_NOTES)

    @server.tool()
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.tool()
    def list_notes() -> list[str]:
        """List the names of all notes."""
        return sorted(notes)

    @server.tool()
    def read_note(name: str) -> str:
        """Return the text of a note."""
        return notes.get(name, "no such note")

    @server.tool()
    def delete_note(name: str) -> str:
        """Delete a note permanently."""
        return "deleted" if notes.pop(name, None) is not None else "no such note"

    return server


if __name__ == "__main__":
    parsed = parse_address(sys.argv[1])
    if not isinstance(parsed, TcpAddress):
        sys.exit(f"{sys.argv[1]} is not a host and a port. Use an address such as 127.0.0.1:9082.")
    serve_sample_tools(parsed)
