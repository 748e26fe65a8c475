"""What hostile clients try, and odd policies say, where Envoy decides by itself: nobody else is there to be asked."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.test_native import KEYS, cel, headers_seen, oidc, rule, token, tools
from tests.support.authservers.asked_services import Recording, asked
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import deciding, mcp_gateway, policy
from tests.support.mcp.mcp_checks import AGENT, call_body

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS

pytestmark = pytest.mark.real

both = pytest.mark.parametrize("envoy", VERSIONS, ids=str)


@both
async def test_what_a_client_says_of_itself_goes_no_further(tmp_path: Path, envoy: Version) -> None:
    written = policy(f"[{oidc(tools('headers'))}, {rule(tools('headers'))}]")
    async with mcp_gateway(tmp_path, written, keys=KEYS, envoy=envoy) as it:
        for shown in ({"token": token()}, {"spiffe_id": AGENT}):
            async with it.http_client(**shown) as http:
                http.headers.update(dict.fromkeys(IDENTITY_HEADERS, "root"))
                seen = await headers_seen(it, http)
            assert not {*IDENTITY_HEADERS, "authorization"} & set(seen)


EDGE = "group: gateway.networking.k8s.io, kind: Gateway, name: edge"
SERVICE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {value: /shop}}]
    backendRefs: [{name: shop, port: 80}]
"""


def before_everything(*rules: str) -> str:
    """Return a policy of the Gateway, which need not be for MCP."""
    written = policy(f"[{', '.join(rules)}]").replace("kind: AccessPolicy", "kind: XAccessPolicy")
    return written.replace("group: agentic.networking.x-k8s.io, kind: Backend, name: shop", EDGE)


@both
async def test_the_header_that_envoy_writes_for_its_own_rules_is_none_that_policies_see(
    tmp_path: Path, envoy: Version
) -> None:
    """Whoever is asked never sees it, and so a rule that wants it grants nothing."""
    read = cel('request.headers["x-forwarded-client-cert"].contains("agent")')
    found = cel('"x-forwarded-client-cert" in request.headers')
    written = before_everything(
        f"{{authorization: [{read}, {found}]}}",
        rule(cel('request.method == "DELETE"')),
    )
    async with mcp_gateway(tmp_path, written, routes=(SERVICE,), envoy=envoy) as it, deciding(it):
        async with it.http_client(spiffe_id=AGENT) as http:
            assert (await http.delete("/shop")).status_code == 404, "nothing is there, as the origin says"
            assert (await http.put("/shop")).status_code == 403
        assert [request.method for request, _ in it.decided] == ["PUT"]


PARAMS: Final = {
    "the tool itself": {"name": "wipe"},
    "a dot before the name": {"name": "wipe", ".name": "add"},
    "something before the dot": {"name": "wipe", "x.name": "add"},
    "a member without a name": {"name": "wipe", "": {"name": "add"}},
}
METHODS: Final[dict[str, dict[str, object]]] = {
    "a dot before the method": {".method": "ping"},
    "a method in a member without a name": {"": {"method": "ping"}},
}


@both
async def test_members_with_dots_and_without_names_stand_for_no_others(tmp_path: Path, envoy: Version) -> None:
    """Before 1.40 Envoy's mcp filter takes the last one for the tool or the method, and another filter does not."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wipe"}}
    bodies = {name: {**call, "params": params} for name, params in PARAMS.items()}
    bodies |= {name: {**call, **more} for name, more in METHODS.items()}
    headers = {"accept": "application/json, text/event-stream"}
    made = mcp_gateway(tmp_path, policy(f"[{rule(tools('add'))}]"), envoy=envoy)
    async with made as it, it.http_client(spiffe_id=AGENT) as http:
        sent = {name: await http.post("/shop", json=body, headers=headers) for name, body in bodies.items()}
    denied = {HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE}
    assert {name for name, answer in sent.items() if answer.status_code not in denied} == set()


@both
async def test_a_length_that_others_may_read_otherwise_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    body = call_body("add", a=1, b=2)
    made = mcp_gateway(tmp_path, policy(f"[{{authorization: [{tools('add')}]}}]"), envoy=envoy)
    async with made as it:
        plain, padded = [await status_of(it.http, length, body) for length in (f"{len(body)}", f"00{len(body)}")]
    assert plain not in {HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE}
    assert padded == HTTPStatus.SERVICE_UNAVAILABLE


async def status_of(port: int, length: str, body: bytes) -> int:
    """Send a call with a length that is written so, which no client would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (
        "POST /shop HTTP/1.1", "host: a.example", "content-type: application/json", f"content-length: {length}",
        "accept: application/json, text/event-stream", "connection: close", "", "",
    )  # fmt: skip
    writer.write("\r\n".join(lines).encode() + body)
    async with asyncio.timeout(5):
        first = await reader.readline()
    writer.close()
    return int(first.split()[1])


@both
async def test_a_token_that_an_external_service_puts_in_place_of_the_clients_goes_on(
    tmp_path: Path, envoy: Version
) -> None:
    exchanged = Allow(edits=HeaderEdits(set=(("authorization", "Bearer exchanged"),)))
    async with asked(Recording(lambda _: exchanged)) as port:
        external = "{type: ExternalAuth, externalAuth: {protocol: GRPC, backendRef: {name: authz, port: 9000}}}"
        written = policy(f"[{oidc(tools('add'))}, {rule(external)}]")
        known = service("authz", port).replace("port: 80}", "port: 9000}")
        made = mcp_gateway(tmp_path, written, keys=KEYS, envoy=envoy, more=(known,))
        async with made as it, deciding(it), it.http_client(spiffe_id=AGENT) as http:
            assert "authorization" in await headers_seen(it, http)
