"""Requests to an MCP server, as a policy sees them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from authplane.policy.check.request import Peer, Request

HEADERS = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))


def request(
    method: str = "tools/call",
    params: Mapping[str, Any] | None = None,
    *,
    headers: Sequence[tuple[str, str]] = (),
    id: object = 7,  # noqa: A002
    **more: Any,
) -> Request:
    message = {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": params} if params is not None else {})
    if id is None:
        del message["id"]
    whole: dict[str, Any] = {
        "method": "POST",
        "path": "/mcp",
        "scheme": "https",
        "host": "mcp.example",
        "headers": (*HEADERS, *headers),
        "body": json.dumps(message).encode(),
        "destination": Peer(port=80),
    }
    return Request(**(whole | more))


def call(tool: str = "add", arguments: Mapping[str, Any] | None = None, **more: Any) -> Request:
    return request(params={"name": tool, "arguments": dict(arguments or {})}, **more)


INITIALIZE = request("initialize", {"protocolVersion": "2025-06-18"})
LIST = request("tools/list")
ADD_CALL = call()
