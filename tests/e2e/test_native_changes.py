"""Keys and control planes come and go while somebody calls a tool all the time, on one connection."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateways.mcp_gateway import HURRIED, deciding
from tests.support.gateways.token_site import ALLOWED, LISTENERS, PATIENCE, REFUSED, Site, Steady, site
from tests.support.issuers.issuer_server import response
from tests.support.issuers.minting import key_set, signer

from authplane.authserver.backends.runtime.policy_server import KeptPolicies

pytestmark = pytest.mark.real

KEPT, OLD, NEW = signer("ES256", "kept"), signer("ES256", "old"), signer("ES256", "new")

both = pytest.mark.parametrize("envoy", VERSIONS, ids=lambda version: version.number)


async def known(kept: KeptPolicies) -> None:
    """Wait until the policy server has the keys of all issuers."""

    async def holds() -> bool:
        return all(each.ready for each in kept.issuers.standings())

    await eventually(holds)


def assert_all_allowed(steady: Steady) -> None:
    assert (steady.order, steady.connections) == ([ALLOWED], 1)


async def connected(it: Site, *, want: int) -> None:
    async def holds() -> bool:
        return await it.stat("control_plane[.]connected_state") == want

    await eventually(holds, limit=PATIENCE)


@both
async def test_a_control_plane_that_is_killed_and_the_next_one_change_nothing(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy, issuers=2) as it, deciding(it.mcp):
        first, second = it.issuers
        first.publish(KEPT)
        second.publish(NEW)
        async with it.controlled_apart() as child:
            await it.answers(KEPT, ALLOWED)
            listeners = await it.stat(LISTENERS)
            async with it.asking(it.token(KEPT)) as steady:
                await it.alone(steady)
                os.kill(child.pid, signal.SIGKILL)
                await child.ended()
                await connected(it, want=0)
                await steady.more()
                async with it.controlled_apart():
                    await connected(it, want=1)
                    await it.alone(steady)
                    # All that the next one has sent is there once an edit is.
                    it.write(first, second)
                    await it.answers(NEW, ALLOWED, second)
                    await steady.more()
            assert_all_allowed(steady)
            assert await it.stat(LISTENERS) == listeners


@both
async def test_a_control_plane_that_finds_an_issuer_away_leaves_its_tokens_to_the_server(
    tmp_path: Path, envoy: Version
) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp) as kept:
        it.issuer.publish(KEPT)
        await known(kept)
        async with it.controlled():
            await it.answers(KEPT, ALLOWED)
        listeners = await it.stat(LISTENERS)
        async with it.asking(it.token(KEPT)) as steady:
            await it.alone(steady)
            keys = it.issuer.answers.pop("/keys")
            async with it.controlled():
                await it.asks(steady)
                it.issuer.answers["/keys"] = keys
                await it.alone(steady)
        assert_all_allowed(steady)
        assert await it.stat(LISTENERS) == listeners


@both
async def test_keys_that_come_late_are_used_from_then_on(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp) as kept:
        it.issuer.publish(KEPT)
        await known(kept)
        keys = it.issuer.answers.pop("/keys")
        async with it.controlled():
            await it.answers(KEPT, ALLOWED)
            listeners = await it.stat(LISTENERS)
            async with it.asking(it.token(KEPT)) as steady:
                await it.asks(steady)
                it.issuer.answers["/keys"] = keys
                await it.alone(steady)
            assert_all_allowed(steady)
            assert await it.stat(LISTENERS) == listeners


@both
async def test_a_second_issuer_is_added_and_the_first_one_notices_nothing(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy, issuers=2) as it, deciding(it.mcp), it.controlled():
        first, second = it.issuers
        first.publish(KEPT)
        second.publish(NEW)
        await it.answers(KEPT, ALLOWED)
        listeners = await it.stat(LISTENERS)
        async with it.asking(it.token(KEPT)) as steady:
            await it.alone(steady)
            it.write(first, second)
            await it.answers(NEW, ALLOWED, second)
            async with it.asking(it.token(NEW, second)) as added:
                await it.alone(added)
                await steady.more()
        assert_all_allowed(steady)
        assert_all_allowed(added)
        assert await it.stat(LISTENERS) == listeners


@both
async def test_keys_rotate_and_the_one_that_stays_is_always_good(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp), it.controlled():
        it.issuer.publish(KEPT, OLD)
        await it.answers(KEPT, ALLOWED)
        listeners = await it.stat(LISTENERS)
        async with it.asking(it.token(KEPT)) as steady:
            await it.alone(steady)
            for came, went in ((NEW, OLD), (OLD, NEW)):
                it.issuer.publish(KEPT, came)
                await it.answers(came, ALLOWED)
                await it.answers(went, REFUSED)
                await it.alone(steady)
        assert_all_allowed(steady)
        assert await it.stat(LISTENERS) == listeners


LOST = {
    "too old": response(b"", status="503 Service Unavailable"),
    "of no use to Envoy": response(key_set(KEPT.jwk(), NEW.jwk(kid=None))),
}


@both
@pytest.mark.parametrize("answer", LOST.values(), ids=LOST.keys())
async def test_keys_that_are_lost_leave_tokens_to_the_server_until_they_are_back(
    tmp_path: Path, envoy: Version, answer: bytes
) -> None:
    soon = replace(HURRIED, max_stale=0.5)
    async with site(tmp_path, envoy) as it, deciding(it.mcp), it.controlled(soon):
        it.issuer.publish(KEPT)
        await it.answers(KEPT, ALLOWED)
        listeners = await it.stat(LISTENERS)
        async with it.asking(it.token(KEPT)) as steady:
            await it.alone(steady)
            keys, it.issuer.answers["/keys"] = it.issuer.answers["/keys"], answer
            await it.asks(steady)
            it.issuer.answers["/keys"] = keys
            await it.alone(steady)
        assert_all_allowed(steady)
        assert await it.stat(LISTENERS) == listeners
