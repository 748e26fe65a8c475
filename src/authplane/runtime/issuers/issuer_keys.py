"""Fetches issuer keys once, for commands that end."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.identity.tokens.keys import KeySet
from authplane.policy.identity.tokens.verify import Trust
from authplane.runtime.issuers.issuers import IssuerOptions, follow_issuers

LIMIT: Final = 15.0
"""Seconds for all issuers together: each answer may take five, and there are two."""


class FetchedKeys(NamedTuple):
    """The answers of issuers."""

    keys: Mapping[str, KeySet]
    """Key sets by issuer URL."""
    failures: Mapping[str, str]
    """The reason of each failure, by issuer URL."""


def fetch_keys(issuers: Collection[Issuer], *, allow_private_networks: bool = False) -> FetchedKeys:
    """Fetch the keys of every issuer as the policy server does, and wait for the answers."""
    return asyncio.run(_fetch(issuers, IssuerOptions(allow_private_networks=allow_private_networks)))


async def _fetch(issuers: Collection[Issuer], options: IssuerOptions) -> FetchedKeys:
    async with follow_issuers(issuers, options) as followed:
        await followed.tried(LIMIT)
        trusts = {issuer.url.url: followed.keys_of(issuer.url.url) for issuer in issuers}
        whys = {
            each.issuer: each.why or "the issuer did not answer within the time limit" for each in followed.standings()
        }
    keys = {url: trust.keys for url, trust in trusts.items() if isinstance(trust, Trust)}
    return FetchedKeys(keys, {url: why for url, why in whys.items() if url not in keys})
