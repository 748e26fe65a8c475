"""The keys of issuers for proxies, kept up to date."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import structlog

from authplane.core.holdoff import Holdoff
from authplane.policy.identity.tokens.export_keys import Withheld, render_jwks
from authplane.policy.identity.tokens.issuer import Issuer, Schedule, Standing
from authplane.policy.identity.tokens.issuer_events import IssuerEvent
from authplane.policy.identity.tokens.key_lifetime import Bounds
from authplane.policy.identity.tokens.verify import Trust
from authplane.runtime.issuers.issuers import IssuerOptions, Issuers, follow_issuers
from authplane.sources.runtime.watch import LONGEST, QUIET

_log: Final = structlog.stdlib.get_logger()

OFTEN: Final = Schedule(bounds=Bounds(usual=300.0, longest=300.0))
"""When keys are fetched for proxies, which do not report tokens with keys that they do not have yet."""


class NativeKeys:
    """The key sets of issuers as proxies get them, without issuers that have no keys or too old ones."""

    def __init__(self, issuers: Issuers, changed: asyncio.Event) -> None:
        self._issuers = issuers
        self._changed = changed
        self._rendered: dict[str, tuple[Trust, str | Withheld]] = {}
        self._taken: Mapping[str, str] = {}
        self._native: frozenset[str] = frozenset()

    def configure(self, issuers: Iterable[Issuer], native: Collection[str]) -> None:
        """Follow these issuers and no others; nothing waits for them. Proxies get the keys of those in ``native``."""
        self._native = frozenset(native)
        self._issuers.configure(issuers)
        self._changed.set()

    def standings(self) -> tuple[Standing, ...]:
        """Return the state of each issuer, by address."""
        return self._issuers.standings()

    async def tried(self, limit: float) -> None:
        """Wait until the keys of every issuer are loaded or could not be fetched, at most ``limit`` seconds."""
        await self._issuers.tried(limit)

    def take(self) -> Mapping[str, str]:
        """Return the current key sets, by address; `changes` reports later ones."""
        self._taken = self._current()
        return self._taken

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """How often each kind of event happened with each issuer."""
        return self._issuers.counts

    async def changes(self) -> AsyncGenerator[float]:
        """Yield once for each burst of events after which the key sets are not those that were last taken.

        What is yielded is when the burst began.
        """
        clock = asyncio.get_running_loop().time
        holdoff = Holdoff(QUIET, LONGEST)
        while True:
            due = holdoff.due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
                    self._changed.clear()
                    holdoff.changed(clock())
            due = holdoff.due()
            if due is not None and clock() >= due:
                began = holdoff.rebuilt() or due
                if self._current() != self._taken:
                    yield began

    def _current(self) -> Mapping[str, str]:
        ready = (each.issuer for each in self._issuers.standings() if each.ready)
        found = {issuer: self._of(issuer) for issuer in ready if issuer in self._native}
        self._rendered = {url: each for url, each in self._rendered.items() if url in found}
        return {url: keys for url, keys in found.items() if isinstance(keys, str)}

    def _of(self, url: str) -> str | Withheld | None:
        trust = self._issuers.keys_of(url)
        if not isinstance(trust, Trust):
            return None
        known = self._rendered.get(url)
        if known is not None and known[0] is trust:
            return known[1]
        keys = render_jwks(trust.keys, trust.demands)
        if isinstance(keys, Withheld):
            _log.info("policy server verifies the tokens of an issuer", issuer=url, why=f"it {keys.why}")
        self._rendered[url] = trust, keys
        return keys


@asynccontextmanager
async def follow_keys(options: IssuerOptions) -> AsyncGenerator[NativeKeys]:
    """Follow issuers for proxies while the block runs; there are none until they are configured."""
    changed = asyncio.Event()

    def heard(event: IssuerEvent) -> None:
        options.observe(event)
        changed.set()

    async with follow_issuers((), replace(options, observe=heard)) as issuers:
        yield NativeKeys(issuers, changed)
