"""Requests to MCP servers, as clients make them and as nobody should."""

import json
from typing import Any, Final, NamedTuple

import pytest

from authplane.policy.mcp.mcp_calls import McpCall
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.message_limits import DEFAULT_LIMITS, McpLimits
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER
from authplane.policy.mcp.read_request import read_mcp

NEWEST: Final = "2026-07-28"
ACCEPT: Final = ("accept", "application/json, text/event-stream")
JSON: Final = ("content-type", "application/json")


def message(method: Any = "tools/call", params: Any = None, **more: Any) -> dict[str, Any]:
    """Make a message, by default a call of the tool ``add``."""
    given = {"name": "add", "arguments": {"a": 1}} if params is None and method == "tools/call" else params
    found = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given, **more}
    return {
        name: value for name, value in found.items() if value is not ... and not (name == "params" and value is None)
    }


def encode(body: Any) -> bytes:
    return body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()


def post(
    body: Any,
    *headers: tuple[str, str],
    path: str = "/mcp",
    complete: bool = True,
    limits: McpLimits = DEFAULT_LIMITS,
) -> McpCall | McpRefusal:
    """Post a message under the headers that every client sends."""
    return read_mcp("POST", (ACCEPT, JSON, *headers), path, encode(body), complete=complete, limits=limits)


def fault(outcome: McpCall | McpRefusal) -> Fault | None:
    return outcome.fault if isinstance(outcome, McpRefusal) else None


def newest(
    method: str, params: dict[str, Any], *headers: tuple[str, str], name: str | None = None
) -> McpCall | McpRefusal:
    """Post a message of the newest version with everything that it demands, unless it is among ``headers``."""
    meta = {VERSION_MEMBER: NEWEST, "io.modelcontextprotocol/clientCapabilities": {}}
    given = {"mcp-protocol-version": NEWEST, "mcp-method": method, **({} if name is None else {"mcp-name": name})}
    given |= dict(headers)
    return post(message(method, {"_meta": meta, **params}), *given.items())


class Refused(NamedTuple):
    """A body and how it is refused."""

    body: Any
    want: Fault
    code: int = -32600
    id: str | None = None


def table(cases: dict[str, Refused]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def check(case: Refused) -> None:
    assert post(case.body) == McpRefusal(http_status=400, code=case.code, fault=case.want, id=case.id)


CALL: Final = '"jsonrpc":"2.0","id":1,"method":"tools/call"'


def argument(text: str) -> str:
    return f'{{{CALL},"params":{{"name":"add","arguments":{{"x":{text}}}}}}}'
