"""Against a certified OpenID provider that we did not write."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from tests.support.certificates import authority
from tests.support.clients.npm import node_modules
from tests.support.issuers.oidc_provider import AUDIENCE, OidcProvider, oidc_provider

from authplane.core.problems import Problems
from authplane.policy.identity.tokens.check_claims import audience_fits, scopes_fit
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.issuer import Issuer, Reach, Schedule
from authplane.policy.identity.tokens.issuer_events import IssuerEvent, KeysChanged
from authplane.policy.identity.tokens.issuer_url import IssuerUrl, parse_issuer_url
from authplane.policy.identity.tokens.key_lifetime import Bounds
from authplane.policy.identity.tokens.token_outcome import Outcome, Reason, Refused, Verified
from authplane.runtime.issuers.issuers import IssuerOptions, follow_issuers

pytestmark = pytest.mark.real

HURRIED: Final = Schedule(between=0.05, first_retry=0.02, bounds=Bounds(shortest=0.2, usual=0.2, longest=0.2))
CALM: Final = Schedule(between=0.05)


def now() -> float:
    return datetime.now(UTC).timestamp()


@pytest.fixture
async def provider(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncGenerator[OidcProvider]:
    modules = node_modules(pytestconfig)
    async with oidc_provider(modules, tmp_path) as running:
        yield running


class Changes:
    """Waits for changes of keys."""

    def __init__(self) -> None:
        self._found: asyncio.Queue[KeysChanged] = asyncio.Queue()

    def __call__(self, event: IssuerEvent) -> None:
        if isinstance(event, KeysChanged):
            self._found.put_nowait(event)

    async def next(self) -> KeysChanged:
        async with asyncio.timeout(5):
            return await self._found.get()


def issuer(provider: OidcProvider) -> Issuer:
    url = parse_issuer_url(provider.url, Problems())
    assert url is not None
    return Issuer(url=url, reach=Reach(allow_private_network=True, ca_pem=authority().certificate.decode()))


def verified(outcome: Outcome) -> Verified:
    assert isinstance(outcome, Verified), outcome
    return outcome


@pytest.mark.requirement("S8")
async def test_access_tokens_are_verified_with_audiences_of_either_form(provider: OidcProvider) -> None:
    async with follow_issuers([issuer(provider)]) as issuers:
        await issuers.tried(5)
        inspector = TokenInspector(issuers)
        plain = verified(inspector.inspect(await provider.token(), now()))
        assert (plain.issuer, plain.subject) == (provider.url, "agent")
        assert plain.claims["aud"] == AUDIENCE
        several = verified(inspector.inspect(await provider.token(aud=["a", AUDIENCE]), now()))
        assert several.claims["aud"] == ("a", AUDIENCE)
        assert [audience_fits(each.claims, [AUDIENCE]) for each in (plain, several)] == [True, True]
        assert [audience_fits(each.claims, ["a"]) for each in (plain, several)] == [False, True]
        assert (scopes_fit(plain.claims, ["read"]), scopes_fit(plain.claims, ["write"])) == (True, False)


@pytest.mark.parametrize("kid", ["ps-1", "es-1", "ed-1"])
async def test_tokens_of_other_algorithms_are_verified(provider: OidcProvider, kid: str) -> None:
    await provider.publish(kid)
    async with follow_issuers([issuer(provider)]) as issuers:
        await issuers.tried(5)
        verified(TokenInspector(issuers).inspect(await provider.token(), now()))


@pytest.mark.requirement("S6")
async def test_expired_and_future_tokens_are_refused(provider: OidcProvider) -> None:
    async with follow_issuers([issuer(provider)]) as issuers:
        await issuers.tried(5)
        inspector, at = TokenInspector(issuers), int(now())
        cases = {
            await provider.token(iat=at - 7200, exp=at - 3600): Reason.EXPIRED,
            await provider.token(nbf=at + 3600, exp=at + 7200): Reason.NOT_YET,
            await provider.token(iat=at + 3600, exp=at + 7200): Reason.NOT_YET,
            await provider.token(exp=None): Reason.CLAIMS,
        }
        for token, reason in cases.items():
            refused = inspector.inspect(token, now())
            assert isinstance(refused, Refused)
            assert (refused.reason, refused.issuer) == (reason, provider.url)


@pytest.mark.requirement("policy:S10")
async def test_a_rotated_key_is_accepted_while_running_and_a_removed_one_is_not(provider: OidcProvider) -> None:
    changes = Changes()
    await provider.publish("rs-old")
    async with follow_issuers([issuer(provider)], IssuerOptions(schedule=CALM, observe=changes)) as issuers:
        await issuers.tried(5)
        inspector = TokenInspector(issuers)
        old = await provider.token()
        verified(inspector.inspect(old, now()))
        await provider.publish("rs-old", "rs-new")
        new = await provider.token()
        assert inspector.inspect(new, now()) == Refused(reason=Reason.KEY, issuer=provider.url, kid="rs-new")
        assert await changes.next() == KeysChanged(issuer=provider.url, added=("rs-new",))
        verified(inspector.inspect(new, now()))
        verified(inspector.inspect(old, now()))


@pytest.mark.requirement("policy:S10")
async def test_a_key_that_the_provider_withdraws_ends_with_the_cache(provider: OidcProvider) -> None:
    changes = Changes()
    await provider.publish("rs-old")
    async with follow_issuers([issuer(provider)], IssuerOptions(schedule=HURRIED, observe=changes)) as issuers:
        await issuers.tried(5)
        inspector, old = TokenInspector(issuers), await provider.token()
        verified(inspector.inspect(old, now()))
        await provider.publish("rs-new")
        assert await changes.next() == KeysChanged(issuer=provider.url, added=("rs-new",), removed=("rs-old",))
        assert inspector.inspect(old, now()) == Refused(reason=Reason.KEY, issuer=provider.url, kid="rs-old")


async def test_a_token_of_a_provider_that_was_not_configured_is_refused(provider: OidcProvider) -> None:
    slashed = IssuerUrl(url=f"{provider.url}/", literal=f"{provider.url}/")
    async with follow_issuers([replace(issuer(provider), url=slashed)]) as issuers:
        await issuers.tried(5)
        refused = TokenInspector(issuers).inspect(await provider.token(), now())
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.issuer) == (Reason.ISSUER, "")
        (standing,) = issuers.standings()
        assert standing.why.startswith("the discovery document names another issuer")
