"""Every denial that an MCP client gets is a JSON-RPC error with the id of its request, whoever denies."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateways.mcp_gateway import McpGateway, deciding, mcp_gateway, policy
from tests.support.issuers.minting import ISSUER, claims, signer
from tests.support.mcp.denial_bodies import split_body
from tests.support.mcp.mcp_checks import AGENT

pytestmark = pytest.mark.real

JSON = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
KEYS = {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})}
WORKLOAD = f"{{type: SPIFFE, spiffe: '{AGENT}'}}"
OIDC = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
ADD = "[{type: InlineTools, tools: [add]}]"
SMALLER = "Invalid request (body too large). Send a smaller body, or raise maxRequestBody."
TOO_LARGE = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": SMALLER}}

DARK = "https://dark.invalid"
"""An issuer whose keys are not there."""

both = pytest.mark.parametrize("envoy", VERSIONS, ids=str)


def call(id_: str, tool: str = "wipe", padding: int = 0, more: str = "") -> bytes:
    """Write a call of a tool; the id is JSON."""
    params = f'{{"name":"{tool}","arguments":{{"x":"{"x" * padding}"}}}}'
    return f'{{"jsonrpc":"2.0","id":{id_}{more},"method":"tools/call","params":{params}}}'.encode()


def rules(source: str) -> str:
    return f"[{{source: {source}, authorization: {ADD}}}]"


async def logged(it: McpGateway, decision: str) -> None:
    """Wait until the access log has a request with the id of a decision."""

    async def found() -> bool:
        return any(f'"request_id":"{decision}"' in line for line in it.lines)

    await eventually(found)


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    """Send a body whose length nobody is told."""
    yield body


def told(response: httpx2.Response) -> tuple[int, str, int]:
    """Return what a denial says: its status, its id as it is written, and its code."""
    assert response.headers["content-type"] == "application/json", response.text
    [id_] = re.findall(r'"id":(.*?),"(?:error|jsonrpc)":', response.text)
    return response.status_code, id_, response.json()["error"]["code"]


async def test_a_denial_has_the_id_where_nothing_can_be_granted_and_where_headers_are_refused(tmp_path: Path) -> None:
    written = (
        policy("[]", "none"),
        policy(f"[{{source: {WORKLOAD}, authorization: []}}]", "empty"),
        policy(f"[{{source: {OIDC}, authorization: {ADD}}}]", "tokens"),
        policy(f"[{{source: {WORKLOAD}, authorization: {ADD}}}]", "workloads"),
    )
    names = ("none", "empty", "tokens", "workloads")
    gateway = mcp_gateway(tmp_path, "---".join(written), backends=names, keys=KEYS)
    async with gateway as it, deciding(it):
        for who in ({}, {"spiffe_id": AGENT}):
            async with it.http_client(**who) as http:
                for name in ("none", "empty"):
                    denied = await http.post(f"/{name}", content=call("7"), headers=JSON)
                    assert told(denied) == (403, "7", -32003)
        twice = [*JSON, ("authorization", "Bearer a"), ("authorization", "Bearer b")]
        async with it.http_client(spiffe_id=AGENT) as http:
            assert told(await http.post("/tokens", content=call('"a"'), headers=twice)) == (401, '"a"', -32004)
            assert told(await http.post("/workloads", content=call("8", "add"), headers=twice)) == (400, "8", -32600)
            notified = await http.post("/none", content=b'{"jsonrpc":"2.0","method":"notifications/x"}', headers=JSON)
            assert (notified.status_code, notified.text) == (403, "")


async def too_large(it: McpGateway, http: httpx2.AsyncClient) -> None:
    for size in (70_000, 2_000_000):
        for body in (call("7", padding=size), in_chunks(call("7", padding=size))):
            refused = await http.post("/shop", content=body, headers=JSON)
            assert (refused.status_code, refused.headers["content-type"]) == (413, "application/json")
            assert split_body(refused.json())[0] == TOO_LARGE
    assert not it.origins["shop"].called


async def test_a_body_over_the_limit_gets_a_json_rpc_error(tmp_path: Path) -> None:
    written = policy(f"[{{source: {WORKLOAD}, authorization: {ADD}}}]")
    async with mcp_gateway(tmp_path, written) as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
        await too_large(it, http)


EXACT = (
    "7", "0", "-1", "99999", "100000", "-100000", "1700000000000", "1.50", "1e30",
    '"x-7"', '"7"', '"a/b c"', '""', '"\\""', '"é"', '"\\u00e9"', '"%REQ(:path)%"',
)  # fmt: skip
"""Ids that Envoy repeats by itself, as they are written."""
ASKED = ("9007199254740992", "9007199254740993", "-9007199254740993", "1" * 30)
"""Ids that some parsers round."""


@both
async def test_where_envoy_denies_by_itself_the_id_is_that_of_the_request(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{{source: {WORKLOAD}, authorization: {ADD}}}]")
    gateway = mcp_gateway(tmp_path, written, envoy=envoy)
    async with gateway as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
        for id_ in EXACT:
            assert told(await http.post("/shop", content=call(id_), headers=JSON)) == (403, id_, -32003)
        assert not it.decided
        for id_ in ASKED:
            assert told(await http.post("/shop", content=call(id_), headers=JSON)) == (403, id_, -32003)
        assert len(it.decided) == len(ASKED)
        other = await http.post("/shop", content=call("1", more=',"x.id":2'), headers=JSON)
        assert told(other) == (403, "1", -32003)
        asked = len(it.decided)
        # The server behind knows no session.
        granted = await http.post("/shop", content=call("1700000000000", "add"), headers=JSON)
        assert (granted.status_code, len(it.decided)) == (400, asked)
        newest = [*JSON, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list"), ("mcp-name", "wipe")]
        assert (await http.post("/shop", content=call("7"), headers=newest)).json()["error"]["code"] == -32020
        await too_large(it, http)


NO_DECISION = "No decision: the policy server did not decide. Retry later."


@both
async def test_without_a_decision_a_client_gets_a_json_rpc_error_that_names_the_decision(
    tmp_path: Path, envoy: Version
) -> None:
    dark = OIDC.replace(ISSUER, DARK)
    written = (policy(f"[{{source: {WORKLOAD}, authorization: {ADD}}}]"), policy(rules(dark), "dark"))
    gateway = mcp_gateway(tmp_path, "---".join(written), backends=("shop", "dark"), envoy=envoy)
    async with gateway as it, it.http_client(spiffe_id=AGENT) as http:
        # The policy server is away, and Envoy does not know the id.
        away = await http.post("/shop", content=call("7", more=',"id":8'), headers=JSON)
        assert (away.status_code, away.headers["content-type"]) == (503, "application/json")
        said, decision = split_body(away.json())
        assert said == {"jsonrpc": "2.0", "id": None, "error": {"code": -32006, "message": NO_DECISION}}
        await logged(it, decision)
        async with deciding(it):
            bearer = ("authorization", f"Bearer {signer('ES256').token(claims(iss=DARK))}")
            unknown = await http.post("/dark", content=call('"a"'), headers=[*JSON, bearer])
            assert told(unknown) == (503, '"a"', -32006)
            said, decision = split_body(unknown.json())
            assert said["error"]["message"] == f'No decision: the keys of issuer "{DARK}" are not loaded. Retry later.'
            [(asked, grounds)] = it.decided
            assert (asked.values("x-request-id"), grounds.reason) == ((decision,), "issuer_not_ready")
            ping = await http.get("/dark", headers=[("accept", "text/event-stream"), bearer])
            assert (ping.status_code, ping.json()["error"]["message"]) == (503, NO_DECISION)


@both
async def test_where_envoy_reads_messages_it_repeats_the_id_without_a_decision(tmp_path: Path, envoy: Version) -> None:
    asks = "[{type: InlineTools, tools: [add]}, {type: CEL, cel: '[1].exists(x, x == 1)'}]"
    written = policy(f"[{{source: {WORKLOAD}, authorization: {asks}}}]")
    gateway = mcp_gateway(tmp_path, written, envoy=envoy)
    async with gateway as it, it.http_client(spiffe_id=AGENT) as http:
        for id_ in EXACT:
            assert told(await http.post("/shop", content=call(id_), headers=JSON)) == (503, id_, -32006)
        for id_ in ASKED:
            assert told(await http.post("/shop", content=call(id_), headers=JSON)) == (503, "null", -32006)


@both
async def test_a_native_denial_names_the_decision_that_the_access_log_has(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{{source: {OIDC}, authorization: {ADD}}}]")
    gateway = mcp_gateway(tmp_path, written, keys=KEYS, envoy=envoy)
    async with gateway as it:
        for token, status in (("", 401), (signer("ES256").token(claims(aud="shop", iat=1, exp=4_000_000_000)), 403)):
            async with it.http_client(token=token) as http:
                denied = await http.post("/shop", content=call("7"), headers=JSON)
                assert denied.status_code == status
                await logged(it, split_body(denied.json())[1])
                # Envoy makes the id: one of a client could break the JSON around it.
                odd = [*JSON, ("x-request-id", 'a","b":"c')]
                denied = await http.post("/shop", content=call("7"), headers=odd)
                assert UUID(split_body(denied.json())[1]).version == 4


PREFIX = "io.modelcontextprotocol/"


def asked(method: str, version: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Write a message of a version without sessions."""
    meta = {f"{PREFIX}protocolVersion": version, f"{PREFIX}clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 500, "method": method, "params": {"_meta": meta}}
    return json.dumps(body).encode(), [*JSON, ("mcp-protocol-version", version), ("mcp-method", method)]


async def test_a_client_hears_from_the_server_what_it_does_not_speak(tmp_path: Path) -> None:
    removed = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "other/method")
    sent = [*((each, "2026-07-28") for each in removed), ("server/discover", "v999.0.0")]
    everybody = policy("[{authorization: [{type: CEL, cel: 'request.mcp.method != \"x\"'}]}]")
    async with mcp_gateway(tmp_path, everybody) as it, deciding(it), it.http_client() as http:
        direct = f"http://127.0.0.1:{it.origins['shop'].port}/mcp"
        for method, version in sent:
            body, headers = asked(method, version)
            answers = [await http.post(url, content=body, headers=headers) for url in (direct, "/shop")]
            said = [(each.status_code, each.json()) for each in answers]
            assert said[0] == said[1]
            assert said[1][1]["error"]["code"] == (-32022 if method == "server/discover" else -32601)
