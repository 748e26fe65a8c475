"""Requests that Envoy decides by itself: the policy server is asked about the rest, and may be away for these."""

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from tests.support.envoys import VERSIONS, Version
from tests.support.mcp_checks import AGENT
from tests.support.mcp_gateway import McpGateway, deciding, mcp_gateway, policy
from tests.support.minting import ISSUER, claims, signer

NATIVE = "  bodyInspection: Native"
OTHER = "spiffe://cluster.local/ns/default/sa/other"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "t", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
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


@both
async def test_only_what_no_native_rule_grants_and_another_could_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    argument = cel('request.mcp.params.file == "a"')
    mixed = (rule(tools("add"), argument), rule(tools("wipe"), spiffe_id=OTHER))
    async with mcp_gateway(tmp_path, policy(f"[{', '.join(mixed)}]"), settings=NATIVE, envoy=envoy) as it:
        # Nobody is there to be asked.
        assert await call(it, "add") == 400
        assert await call(it, "wipe", OTHER) == 400
        assert await call(it, "add", OTHER) == 403
        assert await call(it, "read_file") == 503
        async with deciding(it):
            async with it.http_client(spiffe_id=AGENT) as http:
                assert (await it.call(http, "read_file", file="a")).status_code == 400
                assert (await it.call(http, "read_file", other="a")).status_code == 403
            assert await call(it, "add") == 400
            assert await call(it, "add", OTHER) == 403
        assert [grounds.tool for _, grounds in it.decided] == ["read_file", "read_file"]


@both
async def test_requests_of_another_shape_are_asked_about(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{rule(tools('add'))}]")
    async with mcp_gateway(tmp_path, written, settings=NATIVE, envoy=envoy) as it, deciding(it):
        async with it.http_client(spiffe_id=AGENT) as http:
            stream = await http.get("/shop", headers={"accept": "text/event-stream"})
            newest = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}
            later = await it.post(http, {"name": "add", "_meta": META}, headers=newest)
            changed = await it.post(http, {"name": "add"}, headers={"x-http-method-override": "PUT"})
        assert [each.status_code for each in (stream, later, changed)] == [400, 200, 400]
        assert len(it.decided) == 3


# --- Tokens


def oidc(*entries: str, more: str = "") -> str:
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]{more}}}}}"
    return f"{{source: {source}, authorization: [{', '.join(entries)}]}}"


def token(**changed: object) -> str:
    now = int(datetime.now(UTC).timestamp())
    return signer("ES256").token(claims(iss=ISSUER, aud="shop", iat=now, exp=now + 600) | changed)


KEYS = {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})}


@both
async def test_tokens_are_verified_by_envoy_and_who_has_none_is_told_where_to_get_one(
    tmp_path: Path, envoy: Version
) -> None:
    admins = cel('identity.group == "admin"')
    written = policy(f"[{oidc(tools('add', 'headers'), admins)}]")
    async with mcp_gateway(tmp_path, written, settings=NATIVE, keys=KEYS, envoy=envoy) as it:
        metadata = f"{it.url}/.well-known/oauth-protected-resource/shop"
        async with it.http_client(token=token()) as http:
            assert (await it.call(http, "add")).status_code == 400
            denied = await it.call(http, "wipe")
            assert (denied.status_code, denied.headers.get("www-authenticate")) == (403, None)
        async with it.http_client(token=token(group="admin")) as http:
            assert (await it.call(http, "wipe")).status_code == 400
        async with it.http_client() as http:
            nobody = await it.call(http, "add")
        assert nobody.status_code == 401
        assert nobody.headers["www-authenticate"] == f'Bearer realm="default/shop", resource_metadata="{metadata}"'
        assert nobody.json() == {
            "jsonrpc": "2.0",
            "id": "x-7",
            "error": {"code": -32004, "message": "authentication required"},
        }
        for bad in (token(exp=1), token(aud="elsewhere"), token(iss="https://other.example"), token()[:-4] + "AAAA"):
            async with it.http_client(token=bad) as http:
                told = await it.call(http, "add")
            assert told.status_code == 401
            assert told.headers["www-authenticate"] == (
                f'Bearer realm="default/shop", error="invalid_token", resource_metadata="{metadata}"'
            )


async def test_a_token_goes_no_further(tmp_path: Path) -> None:
    written = policy(f"[{oidc(tools('headers'))}, {rule(tools('headers'))}]")
    async with mcp_gateway(tmp_path, written, settings=NATIVE, keys=KEYS) as it:
        for shown in ({"token": token()}, {"spiffe_id": AGENT}):
            async with it.http_client(**shown) as http:
                seen = await headers_seen(it, http)
            assert not {"authorization", "x-forwarded-client-cert"} & set(seen)


async def headers_seen(it: McpGateway, http: httpx2.AsyncClient) -> list[str]:
    """Return the headers that reach the server, which tells them to whoever calls its tool."""
    async with it.mcp(http, old=True) as client:
        answer = await client.call_tool("headers", {})
    assert answer.structured_content is not None
    return answer.structured_content["result"]
