"""Whom bad tokens count against, behind a load balancer: through Envoy."""

from pathlib import Path

import pytest
from tests.support.gateways.mcp_gateway import deciding, mcp_gateway, policy

from authplane.policy.check.client_address import client_address

CALL_OUT = "  placement: CallOut"
"""The policy server sees the request."""
BEHIND_ONE = "  contour: {envoy: {network: {numTrustedHops: 1}}}"
ANYBODY = "[{authorization: [{type: InlineTools, tools: [add]}]}]"


@pytest.mark.real
@pytest.mark.requirement("S14")
@pytest.mark.parametrize(("settings", "client"), [(BEHIND_ONE, "203.0.113.7"), ("", "127.0.0.1")], ids=["one", "none"])
async def test_the_source_is_the_client_before_trusted_proxies(tmp_path: Path, settings: str, client: str) -> None:
    made = mcp_gateway(tmp_path, policy(ANYBODY), settings=f"{settings}\n{CALL_OUT}")
    async with made as it, deciding(it), it.http_client() as http:
        await it.post(http, {"name": "add"}, headers={"x-forwarded-for": "198.51.100.9, 203.0.113.7"})
    assert [client_address(request) for request, _ in it.decided] == [client]
