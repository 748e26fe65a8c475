"""Agents with JWT-SVIDs and projected tokens of ServiceAccounts, through the real Envoy."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from mcp import MCPError
from tests.support.gateways.mcp_gateway import McpGateway, deciding, mcp_gateway, policy
from tests.support.issuers.workload_issuers import WORKLOAD, WorkloadIssuers, workload_issuers
from tests.support.mcp.mcp_checks import AGENT

pytestmark = pytest.mark.real

SPIFFE = f"{{type: SPIFFE, spiffe: '{WORKLOAD}'}}"
ACCOUNT = "{type: ServiceAccount, serviceAccount: {name: agent}}"
OVER = timedelta(hours=-1)


@pytest.fixture
async def issuers(tmp_path: Path) -> AsyncGenerator[WorkloadIssuers]:
    async with workload_issuers(tmp_path) as running:
        yield running


def rules(source: str) -> str:
    return f"[{{name: agent, source: {source}, authorization: [{{type: InlineTools, tools: [add, headers]}}]}}]"


async def status(it: McpGateway, token: str = "", spiffe_id: str = "") -> int:
    """Return the status of a call; one that is allowed is refused by the server with 400, which knows no session."""
    async with it.http_client(token=token, spiffe_id=spiffe_id) as http:
        return (await it.call(http, "add", a=1, b=2)).status_code


async def works(it: McpGateway, token: str, spiffe_id: str = "") -> None:
    """Use the official client: what is granted is done, what is not is denied, and the server sees no token."""
    async with it.http_client(token=token, spiffe_id=spiffe_id) as http, it.mcp(http) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        seen = await client.call_tool("headers", {})
        assert seen.structured_content is not None
        assert "authorization" not in seen.structured_content["result"]
        with pytest.raises(MCPError, match="Access denied"):
            await client.call_tool("wipe", {})


@pytest.mark.requirement("R15")
@pytest.mark.requirement("threat:S11")
@pytest.mark.requirement("S20")
async def test_an_agent_is_known_by_its_jwt_svid(issuers: WorkloadIssuers, tmp_path: Path) -> None:
    entries = issuers.settings()
    async with mcp_gateway(tmp_path, policy(rules(SPIFFE)), issuers=entries) as it, deciding(it):
        await works(it, issuers.svid())
        assert {grounds.identity for _, grounds in it.decided} == {WORKLOAD}
        it.decided.clear()
        refused = {
            "audience_missing": issuers.svid(aud=["elsewhere"]),
            "trust_domain_not_allowed": issuers.svid("spiffe://example.org.evil/agent"),
            "not_a_spiffe_id": issuers.svid("agent"),
        }
        for token in refused.values():
            assert await status(it, token) == 401
        assert await status(it, issuers.svid(lifetime=OVER)) == 401
        assert await status(it, issuers.svid(f"{WORKLOAD}-2")) == 401
        assert await status(it) == 401
        assert [grounds.reason for _, grounds in it.decided] == [
            *(f"bad_workload_token:{why}" for why in refused),
            "bad_token:token_expired",
            "peer_not_listed",
            "no_peer_identity",
        ]
        # What is said in a header of its own is not said.
        async with it.http_client() as http:
            spoofed = {"x-forwarded-client-cert": f"URI={WORKLOAD}", "x-spiffe-id": WORKLOAD}
            assert (await it.post(http, {"name": "add"}, headers=spoofed)).status_code == 401
        assert it.origins["shop"].called == ["add", "headers"]


@pytest.mark.requirement("R16")
@pytest.mark.requirement("K02")
@pytest.mark.requirement("K05")
async def test_a_pod_is_known_by_its_projected_token(issuers: WorkloadIssuers, tmp_path: Path) -> None:
    entries = issuers.settings()
    async with mcp_gateway(tmp_path, policy(rules(ACCOUNT)), issuers=entries) as it, deciding(it):
        await works(it, issuers.projected())
        assert {grounds.identity for _, grounds in it.decided} == {"ServiceAccount default/agent"}
        it.decided.clear()
        tokens = {
            "bad_workload_token:audience_missing": issuers.projected(aud=["https://kubernetes.default.svc"]),
            "bad_token:token_expired": issuers.projected(lifetime=OVER),
            "peer_not_listed": issuers.projected(namespace="other"),
            "bad_workload_token:claims_malformed": issuers.projected(sub="system:serviceaccount:default:admin"),
        }
        for token in tokens.values():
            assert await status(it, token) == 401
        assert [grounds.reason for _, grounds in it.decided] == list(tokens)
        assert it.origins["shop"].called == ["add", "headers"]


async def test_who_shows_a_certificate_and_a_token_is_the_same_in_both(
    issuers: WorkloadIssuers, tmp_path: Path
) -> None:
    written = rules(SPIFFE)[:-1] + ", " + rules(ACCOUNT).replace("name: agent,", "name: account,", 1)[1:]
    async with mcp_gateway(tmp_path, policy(written), issuers=issuers.settings()) as it, deciding(it):
        await works(it, issuers.svid(), WORKLOAD)
        await works(it, issuers.projected(), AGENT)
        it.decided.clear()
        for token in (issuers.svid(), issuers.projected("other")):
            assert await status(it, token, AGENT) == 401
        assert {grounds.reason for _, grounds in it.decided} == {"bad_workload_token:workloads_differ"}
        # Without the token, or with one that is nobody's, the certificate is as good as before.
        assert [await status(it, token, AGENT) for token in ("", issuers.svid(aud="x"))] == [400, 400]
