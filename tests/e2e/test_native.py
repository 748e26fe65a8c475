"""Requests that Envoy decides by itself: the policy server is asked about the rest, and may be away for these."""

from pathlib import Path

import pytest
from tests.support.envoys import VERSIONS, Version
from tests.support.mcp_checks import AGENT
from tests.support.mcp_gateway import McpGateway, deciding, mcp_gateway, policy

NATIVE = "  bodyInspection: Native"
OTHER = "spiffe://cluster.local/ns/default/sa/other"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

both = pytest.mark.parametrize("envoy", VERSIONS, ids=str)


def rule(*entries: str, spiffe_id: str = AGENT) -> str:
    return f"{{source: {{type: SPIFFE, spiffe: '{spiffe_id}'}}, authorization: [{', '.join(entries)}]}}"


def tools(*names: str) -> str:
    return f"{{type: InlineTools, tools: [{', '.join(names)}]}}"


def cel(text: str) -> str:
    return f"{{type: CEL, cel: '{text}'}}"


async def call(it: McpGateway, tool: str, spiffe_id: str = AGENT) -> int:
    """Return the status of a call; one that is allowed is refused by the server with 400, which knows no session."""
    async with it.http_client(spiffe_id=spiffe_id) as http:
        return (await it.call(http, tool)).status_code


@both
async def test_what_a_native_rule_says_needs_no_policy_server(tmp_path: Path, envoy: Version) -> None:
    async with mcp_gateway(tmp_path, policy(f"[{rule(tools('add'))}]"), settings=NATIVE, envoy=envoy) as it:
        assert await call(it, "add") == 400
        async with it.http_client(spiffe_id=AGENT) as http:
            denied = await it.call(http, "wipe")
        assert (denied.status_code, denied.json()) == (
            403,
            {"jsonrpc": "2.0", "id": "x-7", "error": {"code": -32003, "message": "access denied"}},
        )
        assert await call(it, "add", OTHER) == 403
        async with it.http_client() as http:
            assert (await it.call(http, "add")).status_code == 403
        # The base protocol comes with the rule.
        async with it.http_client(spiffe_id=AGENT) as http:
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            assert (await http.post("/shop", json=INITIALIZE, headers=headers)).status_code == 200
