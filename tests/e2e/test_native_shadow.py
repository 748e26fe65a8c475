"""Policies in shadow where Envoy decides by itself: no request fares otherwise on their account."""

from pathlib import Path

import pytest
from tests.e2e.test_native import in_shadow, rule, tools
from tests.support.gateways.mcp_gateway import ALLOW, McpGateway, mcp_gateway, policy
from tests.support.mcp.mcp_checks import AGENT

CALL_OUT = f"  placement: CallOut\n{ALLOW}"
PLANNED = in_shadow(policy(f"[{rule(tools('add'))}]", name="planned"))
BODIES = {
    "another protocol": b'{"a":1}',
    "no JSON": b"hello",
    "nothing": b"",
    "a member twice": b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/list"}',
    "several messages": b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
    "40 kB": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % (b"x" * 40_000),
    "100 kB": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % (b"x" * 100_000),
    "a large message": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % (b"x" * 3_000_000),
}


async def answers(it: McpGateway) -> dict[str, tuple[int, str]]:
    """Return what becomes of requests that are not plain messages."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    found = {}
    async with it.http_client(spiffe_id=AGENT) as http:
        for name, body in BODIES.items():
            answer = await http.post("/shop", content=body, headers=headers)
            found[name] = (answer.status_code, answer.text)
        answer = await http.get("/shop", headers={"accept": "application/json"})
        found["not for events"] = (answer.status_code, answer.text)
    return found


@pytest.mark.real
@pytest.mark.parametrize("settings", [ALLOW, CALL_OUT], ids=["native", "call-out"])
async def test_a_policy_in_shadow_changes_no_answer(tmp_path: Path, settings: str) -> None:
    found = {}
    for name, policies in {"open": "", "tried out": PLANNED}.items():
        root = tmp_path / name
        root.mkdir()
        async with mcp_gateway(root, policies, settings=settings) as it:
            found[name] = await answers(it)
    assert found["tried out"] == found["open"]
