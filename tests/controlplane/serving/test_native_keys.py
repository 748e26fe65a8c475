"""The keys of issuers for proxies."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs
from tests.support.issuers.issuer_server import IssuerServer, issuer_server, response
from tests.support.issuers.minting import key_set, signer

from authplane.controlplane.serving.runtime.native_keys import OFTEN, NativeKeys, follow_keys
from authplane.policy.identity.tokens.export_keys import render_jwks
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.policy.identity.tokens.key_lifetime import Bounds
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set
from authplane.policy.identity.tokens.verify import Demands
from authplane.runtime.issuers.issuers import IssuerOptions

OLD, NEW = signer("ES256", "old"), signer("ES256", "new")
HURRIED: Final = Schedule(
    between=0.05, first_retry=0.02, bounds=Bounds(shortest=0.05, usual=0.05, longest=0.05), max_stale=3600
)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncGenerator[IssuerServer]:
    async with issuer_server(tmp_path) as running:
        running.publish(OLD)
        yield running


def options(**changes: Any) -> IssuerOptions:
    return replace(IssuerOptions(schedule=HURRIED), **changes)


async def next_of(changes: AsyncGenerator[float]) -> None:
    async with asyncio.timeout(5):
        await anext(changes)


def kids(keys: NativeKeys) -> dict[str, list[str]]:
    return {url: [each["kid"] for each in json.loads(text)["keys"]] for url, text in keys.take().items()}


@pytest.mark.slow
async def test_keys_come_change_and_are_told_once_each(there: IssuerServer) -> None:
    async with follow_keys(options()) as keys:
        changes = keys.changes()
        assert keys.take() == {}
        keys.configure([there.issuer()], {there.url})
        await next_of(changes)
        read = parse_key_set(key_set(OLD.jwk()))
        assert isinstance(read, KeySet)
        assert keys.take() == {there.url: render_jwks(read, Demands())}
        there.publish(OLD, NEW)
        await next_of(changes)
        assert kids(keys) == {there.url: ["new", "old"]}
        there.publish(NEW)
        await next_of(changes)
        assert kids(keys) == {there.url: ["new"]}
        await changes.aclose()


@pytest.mark.slow
async def test_the_same_keys_again_are_no_news(there: IssuerServer) -> None:
    async with follow_keys(options()) as keys:
        changes = keys.changes()
        keys.configure([there.issuer()], {there.url})
        await next_of(changes)
        kept = keys.take()
        there.publish(replace(OLD, algorithm="ES256"), cache_control="max-age=7")
        asked = len(there.asked)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(next_of(changes))
            await there.until(lambda it: len(it.asked) > asked + 4)
            assert not waiting.done()
            there.publish(NEW)
        assert keys.take() != kept
        await changes.aclose()


@pytest.mark.slow
async def test_an_unreachable_issuer_has_no_keys_and_delays_nothing(there: IssuerServer, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    async with issuer_server(folder) as other, follow_keys(options()) as keys:
        changes = keys.changes()
        keys.configure([there.issuer(), other.issuer()], {there.url, other.url})
        assert keys.take() == {}
        await next_of(changes)
        assert kids(keys) == {there.url: ["old"]}
        other.publish(NEW)
        await next_of(changes)
        assert kids(keys) == {there.url: ["old"], other.url: ["new"]}
        await changes.aclose()


@pytest.mark.slow
async def test_keys_that_are_too_old_are_taken_back(there: IssuerServer) -> None:
    now = 0.0
    async with follow_keys(options(clock=lambda: now, schedule=replace(HURRIED, max_stale=1.0))) as keys:
        changes = keys.changes()
        keys.configure([there.issuer()], {there.url})
        await next_of(changes)
        assert kids(keys) == {there.url: ["old"]}
        there.answers["/keys"] = response(b"", status="503 Service Unavailable")
        now = 100.0
        await next_of(changes)
        assert kids(keys) == {}
        await changes.aclose()


@pytest.mark.slow
async def test_keys_that_envoy_cannot_use_are_withheld_and_the_reason_is_reported(there: IssuerServer) -> None:
    there.answers["/keys"] = response(key_set(OLD.jwk(), NEW.jwk(kid=None)))
    with capture_logs() as lines:
        async with follow_keys(options(silent=True)) as keys:
            changes = keys.changes()
            keys.configure([there.issuer()], {there.url})
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(next_of(changes))
                await there.until(lambda it: it.asked.count("/keys") > 3)
                assert not waiting.done()
                assert keys.take() == {}
                there.publish(OLD)
            assert kids(keys) == {there.url: ["old"]}
            await changes.aclose()
    why = "policy server verifies the tokens of an issuer"
    assert lines == [{"event": why, "log_level": "info", "issuer": there.url, "why": "it has a key without a kid"}]


@pytest.mark.slow
async def test_who_is_no_longer_followed_has_no_keys_and_is_not_asked(there: IssuerServer) -> None:
    async with follow_keys(options()) as keys:
        changes = keys.changes()
        keys.configure([there.issuer()], {there.url})
        await next_of(changes)
        assert kids(keys) == {there.url: ["old"]}
        keys.configure([], ())
        await next_of(changes)
        assert keys.take() == {}
        await changes.aclose()


def test_keys_for_proxies_are_fetched_every_few_minutes_despite_cache_headers() -> None:
    assert OFTEN.bounds.longest <= 300
    assert OFTEN.bounds.shortest <= OFTEN.bounds.usual <= OFTEN.bounds.longest


async def test_proxies_get_the_keys_of_those_alone_whose_tokens_they_verify(there: IssuerServer) -> None:
    async with follow_keys(options()) as keys:
        keys.configure([there.issuer()], ())
        await keys.tried(5)
        assert ([each.ready for each in keys.standings()], keys.take()) == ([True], {})
        keys.configure([there.issuer()], {there.url})
        assert kids(keys) == {there.url: ["old"]}
