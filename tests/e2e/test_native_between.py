"""In the middle of a change of keys: Envoy has the new keys, and still the routes of before."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.gateways.mcp_gateway import deciding
from tests.support.gateways.token_site import ALLOWED, REFUSED, Site, site
from tests.support.issuers.keyrings import keys
from tests.support.issuers.minting import Signer, signer

from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent
from authplane.core.envoy_releases import Release
from authplane.policy.identity.tokens.export_keys import render_jwks
from authplane.policy.identity.tokens.verify import Demands
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Editions, Snapshot
from authplane.xds.server.stream_messages import Acked

KEPT, OLD, NEW = signer("ES256", "kept"), signer("ES256", "old"), signer("RS256", "new")
STRANGE = signer("ES256", "strange")


class Case(NamedTuple):
    before: tuple[Signer, ...]
    after: tuple[Signer, ...]


CASES = {
    "keys come": Case((), (KEPT,)),
    "keys are gone": Case((KEPT,), ()),
    "a key is added": Case((KEPT,), (KEPT, NEW)),
    "a key is replaced": Case((KEPT, OLD), (KEPT, NEW)),
    "all keys are others": Case((KEPT,), (NEW,)),
}


@dataclass(frozen=True, slots=True)
class Between:
    """Everything of one generation, but the keys of the next."""

    before: Generation
    after: Generation

    def edition(self, envoy: Release | None) -> Snapshot:
        now, soon = self.before.edition(envoy), self.after.edition(envoy)
        return Snapshot({**now.collections, TypeUrl.EXTENSION: soon.collection(TypeUrl.EXTENSION)})


def generation(it: Site, signers: tuple[Signer, ...]) -> Generation:
    """Build what a control plane serves that knows these keys of the issuer."""
    folder = Folder(it.mcp.folder)
    folder.scan()
    known = {}
    if signers:
        text = render_jwks(keys(*(each.jwk() for each in signers)), Demands())
        assert isinstance(text, str)
        known[it.issuer.url] = text
    return build_generation(folder.library.current(), keys=known)


@dataclass
class Pushed:
    """Publishes, and knows what Envoy has accepted."""

    envoy: Version
    accepted: dict[TypeUrl, str] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ads: Ads = field(init=False)

    def __post_init__(self) -> None:
        self.ads = Ads(self.hear)

    def hear(self, event: AdsEvent) -> None:
        if isinstance(event, Acked):
            self.accepted[event.type_url] = event.version
            self.news.set()

    async def publish(self, editions: Editions) -> None:
        """Wait until Envoy has it."""
        snapshot = editions.edition(self.envoy.release)
        self.ads.publish(editions)
        async with asyncio.timeout(5):
            while any(self.accepted.get(each) != snapshot.version(each) for each in (TypeUrl.EXTENSION, TypeUrl.ROUTE)):
                self.news.clear()
                await self.news.wait()


@pytest.mark.real
@pytest.mark.parametrize("envoy", VERSIONS, ids=lambda version: version.number)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_who_is_allowed_before_and_after_is_allowed_in_between(
    tmp_path: Path, envoy: Version, case: Case
) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp):
        # The policy server knows the key all the time.
        it.issuer.publish(KEPT)
        pushed = Pushed(envoy)
        before, after = generation(it, case.before), generation(it, case.after)
        async with pushed.ads.serve(it.settings().address):
            await pushed.publish(before)
            await it.answers(KEPT, ALLOWED)
            for editions in (Between(before, after), after):
                await pushed.publish(editions)
                assert (await it.status(KEPT), await it.status(STRANGE)) == (ALLOWED, REFUSED)
