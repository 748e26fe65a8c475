"""Agents with SPIFFE certificates, several backends, and policies that change, break and lose their server."""

import json
import ssl
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from tests.support.certificates import authority
from tests.support.clients.curl import Curl
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import kill
from tests.support.gateways.mcp_gateway import ALLOW, McpGateway, deciding, deciding_apart, mcp_gateway, policy, route
from tests.support.mcp.denial_bodies import split_body
from tests.support.mcp.mcp_checks import AGENT

from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, create_authority, issue

pytestmark = pytest.mark.real

CALL_OUT = "  placement: CallOut"
"""Settings with which the policy server decides everything: these tests are about it."""
OTHER = "spiffe://cluster.local/ns/default/sa/other"
DENIED = 'Access denied. No rule grants tools/call "add" to this caller.'
STRANGER = "spiffe://elsewhere.example/agent"


def rule(*tools: str, spiffe_id: str = AGENT) -> str:
    granted = f"{{type: InlineTools, tools: [{', '.join(tools)}]}}"
    return f"{{source: {{type: SPIFFE, spiffe: '{spiffe_id}'}}, authorization: [{granted}]}}"


def rules(*each: str) -> str:
    return f"[{', '.join(each)}]"


async def status(it: McpGateway, tool: str = "add", spiffe_id: str = AGENT, path: str = "/shop") -> int:
    """Return the status of a call; one that is allowed is refused by the server with 400, which knows no session."""
    async with it.http_client(spiffe_id=spiffe_id) as http:
        return (await it.call(http, tool, path=path)).status_code


@pytest.mark.parametrize("old", [False, True], ids=["newest", "2025-06-18"])
async def test_a_workload_does_what_it_may_and_nothing_else(tmp_path: Path, old: bool) -> None:
    account = "{type: ServiceAccount, serviceAccount: {name: other}}"
    cel = 'request.mcp.tool_name.startsWith("read_")'
    written = rules(rule("add"), f"{{source: {account}, authorization: [{{type: CEL, cel: '{cel}'}}]}}")
    async with mcp_gateway(tmp_path, policy(written)) as it, deciding(it):
        async with it.http_client(spiffe_id=AGENT) as http, it.mcp(http, old=old) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            for tool in ("wipe", "read_file"):
                with pytest.raises(MCPError, match="Access denied"):
                    await client.call_tool(tool, {"path": "a"})
        async with it.http_client(spiffe_id=OTHER) as http, it.mcp(http, old=old) as client:
            answer = await client.call_tool("read_file", {"path": "a"})
            assert answer.structured_content == {"result": "content of a"}
            with pytest.raises(MCPError, match="Access denied"):
                await client.call_tool("add", {"a": 1, "b": 2})
        assert it.origins["shop"].called == ["add", "read_file"]
        async with it.http_client(spiffe_id=STRANGER) as http:
            denied = await it.call(http, "add")
            assert (denied.status_code, split_body(denied.json())[0]) == (
                403,
                {"jsonrpc": "2.0", "id": "x-7", "error": {"code": -32003, "message": DENIED}},
            )
        # Without a certificate there is nobody, whatever a client says of itself.
        async with it.http_client() as http:
            spoofed = {"x-forwarded-client-cert": f"URI={AGENT}", "x-spiffe-id": AGENT}
            assert (await it.post(http, {"name": "add"}, headers=spoofed)).status_code == 403


@pytest.mark.requirement("S06")
async def test_a_certificate_of_a_wrong_authority_purpose_or_time_proves_nothing(tmp_path: Path) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    ours, theirs = authority(), create_authority("others", now=now, lifetime=day)
    agent = Leaf(name="agent", usage=Usage.CLIENT, uris=(AGENT,))
    bad = {
        "another authority": issue(theirs, agent, now=now, lifetime=day),
        "the purpose of a server": issue(ours, Leaf(name="agent", uris=(AGENT,)), now=now, lifetime=day),
        "over": issue(ours, agent, now=now - 3 * day, lifetime=day),
        "not yet": issue(ours, agent, now=now + 3 * day, lifetime=day),
    }
    async with mcp_gateway(tmp_path, policy(rules(rule("add"))), settings=CALL_OUT) as it, deciding(it):
        assert await status(it) == 400
        for why, pair in bad.items():
            (tmp_path / "bad.pem").write_bytes(pair.certificate + pair.key.reveal())
            with pytest.raises((httpx2.TransportError, ssl.SSLError)):
                await over(it, tmp_path / "bad.pem")
            assert len(it.decided) == 1, why
        # One of our own for another trust domain gets as far as the policies.
        assert await status(it, spiffe_id=AGENT.replace("cluster.local", "elsewhere.example")) == 403


async def over(it: McpGateway, certificate: Path) -> None:
    tls = ssl.create_default_context(cadata=authority().certificate.decode())
    tls.load_cert_chain(certificate)
    async with httpx2.AsyncClient(base_url=it.secure_url, verify=tls) as http:
        await it.call(http, "add")


async def test_each_backend_of_a_weighted_route_has_its_own_policies(tmp_path: Path) -> None:
    policies = "---".join([policy(rules(rule("origin", "add")), "one"), policy(rules(rule("wipe")), "two")])
    routes = (route("all", {"one": 1, "two": 1, "open": 1}),)
    made = mcp_gateway(
        tmp_path, policies, backends=("one", "two", "open"), routes=routes, settings=f"{ALLOW}\n{CALL_OUT}"
    )
    async with made as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
        seen: Counter[tuple[str, int]] = Counter()
        for _ in range(60):
            before = len(it.decided)
            answer = await it.call(http, "origin", path="/all")
            asked = [request.context["authplane.target"] for request, _ in it.decided[before:]]
            seen["".join(asked), answer.status_code] += 1
        # 400 is the word of a server that was reached.
        assert set(seen) == {("Backend/default/one", 400), ("Backend/default/two", 403), ("", 400)}


async def test_policies_change_break_and_go_without_a_restart(tmp_path: Path) -> None:
    async with (
        mcp_gateway(tmp_path, policy(rules(rule("add"))), settings=CALL_OUT) as it,
        deciding_apart(it, "--engine", "grpcio"),
    ):
        assert [await status(it, tool) for tool in ("add", "wipe")] == [400, 403]

        async def becomes(add: int, wipe: int) -> None:
            async def so() -> bool:
                return [await status(it, tool) for tool in ("add", "wipe")] == [add, wipe]

            await eventually(so)

        it.write("policies.yaml", policy(rules(rule("wipe"))))
        await becomes(403, 400)
        # A field that does not exist: the last good version stays.
        it.write("policies.yaml", policy(rules(rule("add").replace("tools:", "toolz:"))))
        await becomes(403, 400)
        it.write("policies.yaml", policy(rules(rule("add"))))
        await becomes(400, 403)
        # An expression that cannot be: nothing is allowed.
        it.write("policies.yaml", policy(rules("{authorization: [{type: CEL, cel: 'request.nothing'}]}")))
        await becomes(403, 403)
        # A policy more, of which both must allow.
        both = "---".join([policy(rules(rule("add", "wipe"))), policy(rules(rule("wipe")), name="more")])
        it.write("policies.yaml", both)
        await becomes(403, 400)


@pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])
async def test_without_the_policy_server_nothing_goes_through(tmp_path: Path, engine: str) -> None:
    made = mcp_gateway(tmp_path, policy(rules(rule("add"))), backends=("shop", "open"), settings=f"{ALLOW}\n{CALL_OUT}")
    async with made as it:
        assert await status(it) == 503
        async with deciding_apart(it, "--engine", engine) as (child, _):
            assert await status(it) == 400
            await kill(child)
            assert await status(it) == 503
            assert await status(it, path="/open") == 400
        async with deciding_apart(it, "--engine", engine):

            async def back() -> bool:
                return await status(it) == 400

            await eventually(back)
            assert await status(it, "wipe") == 403


async def test_a_denial_with_status_200_reaches_the_client_as_an_error(tmp_path: Path) -> None:
    made = mcp_gateway(tmp_path, policy(rules(rule("add"))), settings="  denialFormat: jsonrpc200")
    async with made as it, deciding(it):
        async with it.http_client(spiffe_id=AGENT) as http:
            answer = await it.call(http, "wipe")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert split_body(answer.json())[0] == {
                "jsonrpc": "2.0",
                "id": "x-7",
                "error": {"code": 403, "message": "Access to this tool is forbidden."},
            }
        async with it.http_client(spiffe_id=AGENT) as http, it.mcp(http) as client:
            with pytest.raises(MCPError, match="Access to this tool is forbidden"):
                await client.call_tool("wipe", {})
        assert it.origins["shop"].called == []


# --- Bodies


def call_of(size: int) -> bytes:
    """Return a call of an allowed tool that is so many bytes long."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "add", "arguments": {"a": 1, "b": 2, "pad": ""}}
    message["params"]["arguments"]["pad"] = "x" * (size - len(json.dumps(message)))
    return json.dumps(message).encode()


@pytest.mark.requirement("E20")
@pytest.mark.parametrize("told", [True, False], ids=["with a length", "without a length"])
async def test_over_http_2_a_body_that_envoy_sends_in_part_satisfies_no_rule(tmp_path: Path, told: bool) -> None:
    made = mcp_gateway(tmp_path, policy(rules(rule("add"))), settings="  maxRequestBody: 1000")
    async with made as it, deciding(it), it.http_client(spiffe_id=AGENT):
        # Other clients end the body with a frame of its own, which Envoy treats well.
        curl = Curl(folder=tmp_path, http=it.http, https=it.https)
        body = tmp_path / "body.json"
        options = ["--http2", "--cert", str(tmp_path / "client.pem"), "--data-binary", f"@{body}"]
        options += ["-H", "content-type: application/json", "-H", "x-envoy-auth-partial-body: false"]
        options += [] if told else ["-H", "content-length:", "-H", "transfer-encoding: chunked"]

        async def sent(size: int) -> tuple[int, str]:
            body.write_bytes(call_of(size))
            before = len(it.decided)
            answer = await curl.get(f"{it.secure_url}/shop", *options)
            return answer.status, " ".join(grounds.reason for _, grounds in it.decided[before:])

        assert await sent(1000) == (400, "granted")
        asked = {size: await sent(size) for size in (1001, 2000, 9000, 16_384, 20_000)}
        assert {status for status, _ in asked.values()} == {413}, asked
        assert {why for _, why in asked.values()} <= {"", "mcp:body_truncated", "mcp:body_too_large"}
        # Some of them Envoy does send, although it is told not to; then it says so, whatever the client says.
        partial = [request for request, _ in it.decided if "true" in request.values("x-envoy-auth-partial-body")]
        assert partial
        assert it.origins["shop"].called == []
