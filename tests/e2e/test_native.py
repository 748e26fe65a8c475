"""Requests that Envoy decides by itself: the policy server is asked about the rest, and may be away for these."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.gateways.mcp_gateway import ALLOW, McpGateway, deciding, mcp_gateway, policy, route
from tests.support.issuers.minting import ISSUER, claims, signer
from tests.support.mcp.denial_bodies import split_body
from tests.support.mcp.mcp_checks import AGENT

pytestmark = pytest.mark.real

DENIED = 'Access denied. No rule grants tools/call "wipe" to this caller.'
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
    async with mcp_gateway(tmp_path, policy(f"[{rule(tools('add'))}]"), envoy=envoy) as it:
        assert await call(it, "add") == 400
        async with it.http_client(spiffe_id=AGENT) as http:
            denied = await it.call(http, "wipe")
        assert (denied.status_code, split_body(denied.json())[0]) == (
            403,
            {"jsonrpc": "2.0", "id": "x-7", "error": {"code": -32003, "message": DENIED}},
        )
        assert await call(it, "add", OTHER) == 403
        async with it.http_client() as http:
            assert (await it.call(http, "add")).status_code == 403
        # The base protocol comes with the rule.
        async with it.http_client(spiffe_id=AGENT) as http:
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            assert (await http.post("/shop", json=INITIALIZE, headers=headers)).status_code == 200


@both
async def test_all_tools_are_granted_natively_and_by_the_policy_server_alike(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"""[{rule(tools("'*'"))}]""", "shop", "asked")
    apart = {"asked": "authplane.dev/placement: CallOut"}
    names = ("shop", "asked")
    gateway = mcp_gateway(tmp_path, written, backends=names, annotations=apart, envoy=envoy)
    async with gateway as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        said = {name: list[tuple[str, int, bool]]() for name in names}
        for name in names:
            for method in ("tools/call", "prompts/get"):
                body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": "wipe"}}
                answer = await http.post(f"/{name}", json=body, headers=headers)
                said[name].append((method, answer.status_code, bool(it.decided)))
        assert said == {
            "shop": [("tools/call", 400, False), ("prompts/get", 403, False)],
            "asked": [("tools/call", 400, True), ("prompts/get", 403, True)],
        }
        assert await call(it, "wipe", OTHER) == 403


@both
async def test_only_what_no_native_rule_grants_and_another_could_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    loop = cel('[request.mcp.tool_name].exists(x, x == "read_file")')
    mixed = (rule(tools("add"), loop), rule(tools("wipe"), spiffe_id=OTHER))
    async with mcp_gateway(tmp_path, policy(f"[{', '.join(mixed)}]"), envoy=envoy) as it:
        # Nobody is there to be asked.
        assert await call(it, "add") == 400
        assert await call(it, "wipe", OTHER) == 400
        assert await call(it, "add", OTHER) == 403
        assert await call(it, "read_file") == 503
        async with deciding(it):
            assert await call(it, "read_file") == 400
            assert await call(it, "headers") == 403
            assert await call(it, "add") == 400
            assert await call(it, "add", OTHER) == 403
        assert [grounds.tool for _, grounds in it.decided] == ["read_file", "headers"]


@both
async def test_rules_read_arguments_natively_and_lookalikes_are_called_out(tmp_path: Path, envoy: Version) -> None:
    argument = cel('request.mcp.params.file == "a" && request.mcp.params.size < 10')
    made = mcp_gateway(tmp_path, policy(f"[{rule(tools('add'), argument)}]"), envoy=envoy)
    async with made as it, it.http_client(spiffe_id=AGENT) as http:
        sent: dict[str, dict[str, Any]] = {
            "granted": {"file": "a", "size": 9.5, "more": [{}]},
            "another file": {"file": "b", "size": 9},
            "another size": {"file": "a", "size": 10},
            "a size that is a text": {"file": "a", "size": "9"},
            "no size": {"file": "a"},
            "a list": {"file": ["a"], "size": 9},
            "a lookalike": {"file": "a", "size": 9, "FILE": "b"},
        }
        found = {name: (await it.call(http, "read_file", **each)).status_code for name, each in sent.items()}
        # Nobody is there to be called.
        assert found == dict.fromkeys(sent, 403) | {"granted": 400, "a list": 503, "a lookalike": 503}
        assert await call(it, "add") == 400
        async with deciding(it):
            assert (await it.call(http, "read_file", file=["a"], size=9)).status_code == 403
            assert "lookalike" in (await it.call(http, "read_file", file="a", size=9, FILE="b")).text
            assert "lookalike" in (await it.call(http, "add", FILE="b")).text


@both
async def test_requests_of_another_shape_are_asked_about(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{rule(tools('add'))}]")
    async with mcp_gateway(tmp_path, written, envoy=envoy) as it, deciding(it):
        async with it.http_client(spiffe_id=AGENT) as http:
            stream = await http.get("/shop", headers={"accept": "text/event-stream"})
            newest = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}
            later = await it.post(http, {"name": "add", "_meta": META}, headers=newest)
            changed = await it.post(http, {"name": "add"}, headers={"x-http-method-override": "PUT"})
        assert [each.status_code for each in (stream, later, changed)] == [400, 200, 400]
        # Messages of every version of MCP are native.
        assert len(it.decided) == 2


# --- Several policies


BOTH = "spiffe://cluster.local/ns/default/sa/both"


def two(first: str, second: str) -> str:
    return policy(first, name="first") + "---" + policy(second, name="second")


@both
async def test_every_policy_has_to_grant_unless_one_suffices(tmp_path: Path, envoy: Version) -> None:
    written = two(f"[{rule(tools('add', 'wipe'))}]", f"[{rule(tools('add', 'headers'))}]")
    expected = {"All": {"add": 400, "wipe": 403, "headers": 403}, "Any": {"add": 400, "wipe": 400, "headers": 400}}
    for composition, statuses in expected.items():
        settings = f"  policyComposition: {composition}"
        root = tmp_path / composition
        root.mkdir()
        async with mcp_gateway(root, written, settings=settings, envoy=envoy) as it:
            assert {tool: await call(it, tool) for tool in statuses} == statuses
            assert await call(it, "read_file") == 403
            assert await call(it, "add", OTHER) == 403


async def test_one_policy_grants_natively_and_the_other_has_to_be_asked(tmp_path: Path) -> None:
    asks = cel('[request.mcp.tool_name].exists(x, x == "wipe")')
    written = two(f"[{rule(tools('add', 'wipe', 'read_file'))}]", f"[{rule(tools('add'), asks)}]")
    async with mcp_gateway(tmp_path, written) as it:
        assert [await call(it, tool) for tool in ("add", "wipe", "headers")] == [400, 503, 403]
        async with deciding(it):
            assert [await call(it, tool) for tool in ("wipe", "read_file")] == [400, 403]
        assert len(it.decided) == 2


@both
async def test_policies_of_the_gateway_stand_before_those_of_backends(tmp_path: Path, envoy: Version) -> None:
    gateway = policy(f"[{rule(tools('add', 'wipe'))}]", name="edge").replace(
        "group: agentic.networking.x-k8s.io, kind: Backend, name: shop",
        "group: gateway.networking.k8s.io, kind: Gateway, name: edge",
    )
    written = gateway + "---" + policy(f"[{rule(tools('add', 'headers'))}]")
    async with mcp_gateway(tmp_path, written, envoy=envoy) as it:
        assert [await call(it, tool) for tool in ("add", "wipe", "headers")] == [400, 403, 403]


@both
async def test_a_route_to_several_backends_is_judged_by_the_one_that_is_chosen(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{rule(tools('add'))}]", "left") + "---" + policy(f"[{rule(tools('wipe'))}]", "right")
    routes = (route("shop", {"left": 1, "right": 1, "free": 1}),)
    names = ("left", "right", "free")
    async with mcp_gateway(tmp_path, written, settings=ALLOW, backends=names, routes=routes, envoy=envoy) as it:
        # Whoever is not chosen to be asked by a rule of its own says nothing: 200 and 400 are words of the servers.
        found = {tool: {await call(it, tool) for _ in range(40)} for tool in ("add", "read_file")}
    assert found == {"add": {400, 403}, "read_file": {400, 403}}


async def test_an_unusable_policy_denies_everything_natively_too(tmp_path: Path) -> None:
    good = f"[{rule(tools('add'))}]"
    async with mcp_gateway(tmp_path, two(good, good)) as it:
        assert await call(it, "add") == 400
    root = tmp_path / "broken"
    root.mkdir()
    empty = "[{source: {type: SPIFFE, spiffe: '" + AGENT + "'}, authorization: []}]"
    async with mcp_gateway(root, two(good, empty)) as it:
        assert await call(it, "add") == 403


# --- Shadow


def in_shadow(written: str) -> str:
    return written.replace("spec:\n", "spec:\n  mode: Shadow\n", 1)


@both
async def test_a_policy_in_shadow_is_counted_and_not_enforced(tmp_path: Path, envoy: Version) -> None:
    shadow = in_shadow(policy(f"[{rule(tools('add'))}]", name="planned"))
    enforced = policy(f"[{rule(tools('add', 'wipe'))}]")
    async with mcp_gateway(tmp_path, f"{enforced}---{shadow}", envoy=envoy) as it:
        assert [await call(it, tool) for tool in ("add", "wipe", "wipe", "headers")] == [400, 400, 400, 403]
        counted = await it.counters("shadow_allowed")
    assert counted == {
        "http.gateway.rbac.shadow.policy.default/planned/rule-0/0:InlineTools.shadow_allowed": 1,
        "http.gateway.rbac.shadow.policy.~none/default/planned.shadow_allowed": 2,
    }


@both
async def test_where_only_policies_in_shadow_stand_everything_passes(tmp_path: Path, envoy: Version) -> None:
    skips = "mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}"
    written = policy(f"[{{name: paths, authorization: [{{type: Inline, paths: [/other], {skips}}}]}}]", name="planned")
    shadow = in_shadow(written).replace("kind: AccessPolicy", "kind: XAccessPolicy")
    async with mcp_gateway(tmp_path, shadow, settings=ALLOW, envoy=envoy) as it:
        assert [await call(it, tool, who) for who in (AGENT, OTHER) for tool in ("add", "wipe")] == [400] * 4
        counted = await it.counters("shadow_allowed")
    assert counted["http.gateway.rbac.shadow.policy.~none/default/planned.shadow_allowed"] == 4


@both
async def test_a_policy_in_shadow_that_envoy_cannot_evaluate_is_left_to_the_policy_server(
    tmp_path: Path, envoy: Version
) -> None:
    """Whoever may be asked is asked, and if nobody answers the request goes on."""
    loop = cel('[request.mcp.tool_name].exists(x, x == "add")')
    shadow = in_shadow(policy(f"[{rule(loop)}]", name="planned"))
    async with mcp_gateway(tmp_path, shadow, settings=ALLOW, envoy=envoy) as it:
        assert await call(it, "wipe") == 400
        async with it.http_client(spiffe_id=AGENT) as http:
            large = await it.call(http, "wipe", much="x" * 3_000_000)
            assert large.status_code == 400
        async with deciding(it):
            assert await call(it, "wipe") == 400
        assert len(it.decided) == 1


@both
async def test_a_policy_in_shadow_that_envoy_evaluates_stops_no_request(tmp_path: Path, envoy: Version) -> None:
    shadow = in_shadow(policy(f"[{rule(tools('add'))}]", name="planned"))
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with mcp_gateway(tmp_path, shadow, settings=ALLOW, envoy=envoy) as it, it.http_client() as http:
        for body in ("{", "[]", '{"id":1,"id":2}', "x" * 3_000_000):
            assert "Access denied" not in (await http.post("/shop", content=body, headers=headers)).text
        assert (await it.call(http, "wipe", much="x" * 3_000_000)).status_code == 400
        assert await call(it, "add") == await call(it, "wipe") == 400
        counted = await it.counters("shadow_allowed")
        place = "http.gateway.rbac.shadow.policy."
        assert counted[f"{place}~none/default/planned.shadow_allowed"] == 1
        assert counted[f"{place}default/planned/rule-0/0:InlineTools.shadow_allowed"] == 1


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
    async with mcp_gateway(tmp_path, written, keys=KEYS, envoy=envoy) as it:
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
        assert split_body(nobody.json())[0] == {
            "jsonrpc": "2.0",
            "id": "x-7",
            "error": {"code": -32004, "message": "Authentication required. Send a bearer token."},
        }
        endless = token(exp=253_402_300_800)
        for bad in (token(exp=1), endless, token(aud="elsewhere"), token(iss="https://other.example")):
            async with it.http_client(token=bad) as http:
                told = await it.call(http, "add")
            assert told.status_code == 401
            assert told.headers["www-authenticate"] == (
                f'Bearer realm="default/shop", error="invalid_token", resource_metadata="{metadata}"'
            )


async def test_who_is_known_to_every_policy_and_granted_by_one_alone_needs_no_other_token(tmp_path: Path) -> None:
    written = two(f"[{oidc(tools('add', 'wipe'))}]", f"[{oidc(tools('add'))}]")
    async with mcp_gateway(tmp_path, written, keys=KEYS) as it, it.http_client(token=token()) as http:
        assert (await it.call(http, "add")).status_code == 400
        denied = await it.call(http, "wipe")
        assert (denied.status_code, denied.headers.get("www-authenticate")) == (403, None)


@both
async def test_a_token_of_a_key_that_envoy_does_not_have_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{oidc(tools('add'))}]")
    now = int(datetime.now(UTC).timestamp())
    payload = claims(iss=ISSUER, aud="shop", iat=now, exp=now + 600)
    later = signer("ES256", kid="later", number=1).token(payload)
    forged = signer("ES256", number=1).token(payload)
    nameless = signer("ES256").token(payload, header=signer("ES256").header(kid=""))
    async with mcp_gateway(tmp_path, written, keys=KEYS, envoy=envoy) as it:
        statuses = {}
        for name, shown in {"known": token(), "later": later, "forged": forged, "nameless": nameless}.items():
            async with it.http_client(token=shown) as http:
                statuses[name] = (await it.call(http, "add")).status_code
        # The issuer may have replaced a key under the same name: only the policy server can find out.
        assert statuses == {"known": 400, "later": 503, "forged": 503, "nameless": 401}


async def test_a_token_goes_no_further(tmp_path: Path) -> None:
    written = policy(f"[{oidc(tools('headers'))}, {rule(tools('headers'))}]")
    async with mcp_gateway(tmp_path, written, keys=KEYS) as it:
        for shown in ({"token": token()}, {"spiffe_id": AGENT}):
            async with it.http_client(**shown) as http:
                seen = await headers_seen(it, http)
            assert not {"authorization", "x-forwarded-client-cert"} & set(seen)


async def headers_seen(it: McpGateway, http: httpx2.AsyncClient) -> list[str]:
    """Return the headers that reach the server, which tells them to whoever calls its tool."""
    async with it.mcp(http, old=True) as client:
        answer = await client.call_tool("headers", {})
    assert answer.structured_content is not None
    found: list[str] = answer.structured_content["result"]
    return found


# --- Sizes, and what is not there


@both
async def test_bodies_up_to_the_limit_are_read_and_larger_ones_never_pass(tmp_path: Path, envoy: Version) -> None:
    made = mcp_gateway(tmp_path, policy(f"[{rule(tools('add'))}]"), envoy=envoy)
    async with made as it, it.http_client(spiffe_id=AGENT) as http:
        for size in (10_000, 65_000):
            assert "session" in (await it.call(http, "add", much="x" * size)).text.lower(), "words of the server behind"
        for size in (70_000, 300_000):
            assert (await it.call(http, "add", much="x" * size)).status_code == 413


@both
async def test_what_no_route_takes_is_not_found(tmp_path: Path, envoy: Version) -> None:
    async with mcp_gateway(tmp_path, policy(f"[{rule(tools('add'))}]"), envoy=envoy) as it:
        for shown in ({}, {"spiffe_id": AGENT}):
            async with it.http_client(**shown) as http:
                assert (await it.call(http, "add", path="/elsewhere")).status_code == 404
