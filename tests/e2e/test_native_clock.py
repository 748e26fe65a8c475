"""Tokens at the end of their time, where Envoy decides by itself: it takes none for longer than the policy server."""

import time
from pathlib import Path

import pytest
from tests.e2e.test_native import KEYS, oidc, token, tools
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.gateways.mcp_gateway import mcp_gateway, policy
from tests.support.issuers.minting import ISSUER

from authplane.policy.identity.tokens.check_claims import DEFAULT_SKEW

SHORT = 3


@pytest.mark.real
@pytest.mark.parametrize("envoy", VERSIONS, ids=str)
@pytest.mark.parametrize("skew", [int(DEFAULT_SKEW), SHORT])
@pytest.mark.requirement("R22")
async def test_a_token_is_refused_in_the_first_second_in_which_it_has_expired(
    tmp_path: Path, envoy: Version, skew: int
) -> None:
    issuer = f"{{url: {ISSUER}, clockSkew: {skew}s}}"
    written = policy(f"[{oidc(tools('add'))}]")
    made = mcp_gateway(tmp_path, written, issuers=(issuer,), keys=KEYS, envoy=envoy)
    async with made as it, it.http_client() as http:

        async def call(exp: int) -> int:
            shown = {"authorization": f"Bearer {token(exp=exp)}"}
            return (await it.post(http, {"name": "add"}, headers=shown)).status_code

        assert await call(int(time.time()) + 600) == 400, "words of the server behind"
        # Not a second has passed since they expired; if it has, they are no better for it.
        assert [await call(int(time.time()) - skew) for _ in range(3)] == [401] * 3
