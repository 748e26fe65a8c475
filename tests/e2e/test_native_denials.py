"""A denial that Envoy decides natively names the call, and the access log names the sender too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateways.mcp_gateway import McpGateway, deciding, mcp_gateway, policy
from tests.support.issuers.minting import ISSUER, claims, signer
from tests.support.mcp.denial_bodies import split_body
from tests.support.mcp.mcp_checks import AGENT

pytestmark = pytest.mark.real

JSON: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
KEYS: Final = {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})}
WORKLOAD: Final = f"{{type: SPIFFE, spiffe: '{AGENT}'}}"
OIDC: Final = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
ADD: Final = "[{type: InlineTools, tools: [add]}]"
TOKEN: Final = signer("ES256").token(claims(aud="shop", sub='a"nn', iat=1, exp=4_000_000_000))
DETAILS: Final = {"mcp_method", "mcp_name", "issuer", "subject", "spiffe_id"}
SENT: Final = (
    ("tools/call", "wipe"),
    ("tools/call", "%REQ(:path)% <b> 'c' {}"),
    ("prompts/get", "wipe"),
    ("resources/read", "file:///x"),
)


def body(method: str, name: str) -> bytes:
    member = "uri" if method.startswith("resources") else "name"
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": {member: name}}).encode()


async def line(it: McpGateway, contains: str) -> Mapping[str, Any]:
    """Return the only line of the access log that contains a text."""

    async def found() -> bool:
        return any(contains in each for each in it.lines)

    await eventually(found)
    [only] = (each for each in it.lines if contains in each)
    return dict[str, Any](json.loads(only))


@pytest.mark.parametrize("envoy", VERSIONS, ids=str)
async def test_a_native_denial_says_what_that_of_the_policy_server_says(tmp_path: Path, envoy: Version) -> None:
    names = ("shop", "asked")
    gateway = mcp_gateway(
        tmp_path,
        policy(f"[{{source: {WORKLOAD}, authorization: {ADD}}}]", *names),
        backends=names,
        annotations={"asked": "authplane.dev/placement: CallOut"},
        envoy=envoy,
    )
    async with gateway as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
        for method, name in SENT:
            content = body(method, name)
            said = [await http.post(f"/{each}", content=content, headers=JSON) for each in names]
            native, asked = (split_body(each.json()) for each in said)
            assert native[0] == asked[0]
            assert method in native[0]["error"]["message"]
            found = await line(it, native[1])
            assert found["details"].startswith("rbac_access_denied")
            assert (found["mcp_method"], found["mcp_name"], found["spiffe_id"]) == (method, name, AGENT)
        assert len(it.decided) == len(SENT)


@pytest.mark.parametrize("envoy", VERSIONS, ids=str)
async def test_the_access_log_names_the_sender_of_a_denied_call_and_never_its_token(
    tmp_path: Path, envoy: Version
) -> None:
    gateway = mcp_gateway(tmp_path, policy(f"[{{source: {OIDC}, authorization: {ADD}}}]"), keys=KEYS, envoy=envoy)
    want = {"mcp_method": "tools/call", "mcp_name": "wipe"}
    async with gateway as it:
        for token, sender in ((TOKEN, {"issuer": ISSUER, "subject": 'a"nn'}), ("", {"issuer": None, "subject": None})):
            async with it.http_client(token=token) as http:
                denied = await http.post("/shop", content=body("tools/call", "wipe"), headers=JSON)
                found = await line(it, split_body(denied.json())[1])
                assert {name: found[name] for name in (*want, *sender)} == want | sender
        async with it.http_client(token=TOKEN) as http:
            # The server behind knows no session.
            assert (await http.post("/shop", content=body("tools/call", "add"), headers=JSON)).status_code == 400
        assert not DETAILS & (await line(it, '"status":400')).keys()
        assert not any(TOKEN in each for each in it.lines)
