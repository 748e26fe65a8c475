"""Tokens that Envoy verifies with keys from the control plane: they come, rotate, and may be away."""

from pathlib import Path

import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.gateways.mcp_gateway import deciding
from tests.support.gateways.token_site import ALLOWED, AWAY, LISTENERS, REFUSED, site
from tests.support.issuers.minting import signer

from authplane.policy.identity.tokens.issuer import Schedule

pytestmark = pytest.mark.real

OLD, NEW = signer("ES256", "old"), signer("RS256", "new")
both = pytest.mark.parametrize("envoy", VERSIONS, ids=lambda version: version.number)


@both
@pytest.mark.requirement("R19")
async def test_other_keys_reach_envoy_and_no_connection_is_closed(tmp_path: Path, envoy: Version) -> None:
    # Nobody decides but Envoy: there is no policy server.
    async with site(tmp_path, envoy) as it, it.controlled():
        await it.answers(OLD, AWAY)
        it.issuer.publish(OLD)
        await it.answers(OLD, ALLOWED)
        listeners = await it.stat(LISTENERS)
        async with it.mcp.http_client() as client:
            kept = await it.call(OLD, client)
            it.issuer.publish(OLD, NEW)
            await it.answers(NEW, ALLOWED)
            assert await it.call(OLD, client) == kept
            it.issuer.publish(NEW)
            # A key that is not there may be there soon: somebody else has to be asked about it.
            await it.answers(OLD, AWAY)
            assert await it.call(NEW, client) == kept
        assert await it.stat(LISTENERS) == listeners


@both
@pytest.mark.requirement("J30")
async def test_another_key_under_the_same_name_is_asked_about_and_found(tmp_path: Path, envoy: Version) -> None:
    replaced = signer("ES256", "old", 1)
    async with site(tmp_path, envoy) as it:
        it.issuer.publish(OLD)
        # Nobody asks the issuer again for an hour, unless a token is a reason to.
        async with deciding(it.mcp, Schedule(between=0.1)), it.controlled(Schedule()):
            await it.answers(OLD, ALLOWED)
            it.issuer.publish(replaced)
            await it.answers(replaced, ALLOWED)


@both
async def test_whose_keys_the_control_plane_cannot_get_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy) as it:
        it.issuer.publish(OLD)
        async with deciding(it.mcp):
            it.issuer.answers.clear()
            async with it.controlled():
                await it.answers(OLD, ALLOWED)
                assert await it.status(NEW) == REFUSED
            assert [grounds.tool for _, grounds in it.mcp.decided][-2:] == ["add", "add"]


@both
async def test_envoy_goes_on_without_a_control_plane_and_the_next_one_brings_what_has_changed(
    tmp_path: Path, envoy: Version
) -> None:
    async with site(tmp_path, envoy) as it:
        it.issuer.publish(OLD)
        async with it.controlled():
            await it.answers(OLD, ALLOWED)
        # Envoy keeps what it has.
        assert await it.status(OLD) == ALLOWED
        it.issuer.publish(NEW)
        async with it.controlled():
            await it.answers(NEW, ALLOWED)
            assert await it.status(OLD) == AWAY
