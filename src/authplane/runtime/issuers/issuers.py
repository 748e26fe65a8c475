"""Keeps the keys of all configured issuers up to date; requests never wait for an issuer."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import field, replace
from typing import Final, TypeAlias, assert_never

import structlog

from authplane.core.problems import printable
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer import Fetch, Issuer, IssuerState, Schedule, Standing
from authplane.policy.identity.tokens.issuer_events import (
    Fetched,
    FetchFailed,
    IssuerEvent,
    KeysChanged,
    KeysLoaded,
    MetadataChanged,
)
from authplane.policy.identity.tokens.verify import NotReady, Trust
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.issuers.issuer_client import FetchError, FetchLimits, IssuerClient

_log: Final = structlog.stdlib.get_logger()

Observe: TypeAlias = Callable[[IssuerEvent], None]


def ignore(_: IssuerEvent) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerOptions:
    """How issuers are followed."""

    schedule: Schedule = field(default_factory=Schedule)
    limits: FetchLimits = field(default_factory=FetchLimits)
    allow_private_networks: bool = False
    """For development: every issuer may be on a private network."""
    observe: Observe = ignore
    """Hears of everything that happens, and must be quick."""
    silent: bool = False
    """Write nothing to the log, because another part of the program logs the same issuers."""
    clock: Callable[[], float] = time.monotonic
    spread: Callable[[], float] = random.random


@dataclass(slots=True)
class _Followed:
    """An issuer and the task that asks it."""

    state: IssuerState
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its keys were fetched, or could not be, for the first time."""


class Issuers:
    """The issuers that are configured now, with their keys: a `Keyring` that stays up to date."""

    def __init__(self, tasks: asyncio.TaskGroup, options: IssuerOptions) -> None:
        self._tasks = tasks
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._followed: dict[str, _Followed] = {}
        self._by_name: dict[str, IssuerState] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """Number of events by issuer and kind."""

    def keys_of(self, name: str) -> Trust | NotReady | None:
        """Return the issuer whose ``iss`` is ``name``; None if it is not configured."""
        state = self._by_name.get(name)
        return None if state is None else state.trust(self._options.clock())

    def wanted(self, issuer: str, kid: str) -> None:
        """Say that a token names a key which the issuer at this address does not have yet; any thread may."""
        followed = self._followed.get(issuer)
        if followed is not None and followed.state.wanted(kid, self._options.clock()):
            self._loop.call_soon_threadsafe(followed.wake.set)

    def standings(self) -> tuple[Standing, ...]:
        """Return the state of each issuer, sorted by URL."""
        now = self._options.clock()
        return tuple(self._followed[url].state.standing(now) for url in sorted(self._followed))

    def configure(self, issuers: Iterable[Issuer]) -> None:
        """Replace the issuers; an issuer whose fetch settings did not change keeps its keys."""
        wished = [self._permitted(issuer) for issuer in issuers]
        by_url = {issuer.url.url: issuer for issuer in wished}
        if len(by_url) != len(wished):
            raise ValueError("two issuers have the same URL")
        kept = {url: old for url, old in self._followed.items() if url in by_url and old.state.reconfigure(by_url[url])}
        for url, old in self._followed.items():
            if url not in kept and old.task is not None:
                old.task.cancel()
        self._followed = {url: kept.get(url) or self._begin(issuer) for url, issuer in by_url.items()}
        self._by_name = {name: each.state for each in self._followed.values() for name in each.state.issuer.url.names()}

    async def tried(self, limit: float) -> None:
        """Wait until the first fetch of every issuer has ended, at most ``limit`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                for followed in tuple(self._followed.values()):
                    await followed.tried.wait()

    def _permitted(self, issuer: Issuer) -> Issuer:
        if not self._options.allow_private_networks:
            return issuer
        return replace(issuer, reach=replace(issuer.reach, allow_private_network=True))

    def _begin(self, issuer: Issuer) -> _Followed:
        followed = _Followed(IssuerState(issuer, self._options.schedule))
        followed.task = self._tasks.create_task(self._follow(followed))
        return followed

    async def _follow(self, followed: _Followed) -> None:
        """Fetch from an issuer whenever its state requires it."""
        state, options = followed.state, self._options
        client = IssuerClient(reach=state.issuer.reach, limits=options.limits)
        while True:
            await self._until_due(followed)
            fetch = state.fetch(options.clock())
            for event in await self._ask(client, state, fetch):
                self._tell(event)
                if isinstance(event, KeysLoaded | FetchFailed):
                    followed.tried.set()

    async def _until_due(self, followed: _Followed) -> None:
        while (wait := followed.state.due() - self._options.clock()) > 0:
            followed.wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await followed.wake.wait()

    async def _ask(self, client: IssuerClient, state: IssuerState, fetch: Fetch) -> tuple[IssuerEvent, ...]:
        clock, spread = self._options.clock, self._options.spread
        try:
            answer = await client.fetch(fetch.url)
            return state.answered(fetch, answer, clock(), spread())
        except FetchError as error:
            return state.failed(fetch, str(error), clock(), spread())
        except Exception as error:  # noqa: BLE001 (one issuer must not end the others)
            _log.error("internal error while fetching issuer keys", issuer=state.issuer.url.url, error=place_of(error))
            return state.failed(fetch, "internal error", clock(), spread())

    def _tell(self, event: IssuerEvent) -> None:
        self.counts[event.issuer, type(event).__name__] += 1
        if not self._options.silent:
            _write_log(event)
        self._options.observe(event)


@asynccontextmanager
async def follow_issuers(issuers: Iterable[Issuer], options: IssuerOptions | None = None) -> AsyncGenerator[Issuers]:
    """Keep the keys of issuers up to date while the block runs; `Issuers.configure` changes the issuers."""
    async with owned_tasks() as tasks:
        followed = Issuers(tasks, options or IssuerOptions())
        followed.configure(issuers)
        try:
            yield followed
        finally:
            followed.configure(())


def _write_log(event: IssuerEvent) -> None:
    match event:
        case Fetched():
            _log.debug("fetched issuer document", issuer=event.issuer, url=event.url)
        case FetchFailed(why=why):
            _log.warning(
                "cannot fetch issuer keys; known keys stay in use for a limited time", issuer=event.issuer, why=why
            )
        case KeysLoaded(keys=keys):
            _log.info("fetched issuer keys", issuer=event.issuer, keys=_shown(keys))
            _write_ignored(event)
        case KeysChanged():
            _log.warning(
                "issuer keys changed",
                issuer=event.issuer,
                added=_shown(event.added),
                removed=_shown(event.removed),
                replaced=_shown(event.replaced),
            )
            _write_ignored(event)
        case MetadataChanged(before=before, after=after):
            _log.warning(
                "issuer changed its jwks_uri",
                issuer=event.issuer,
                before=before.jwks_uri,
                after=after.jwks_uri,
            )
        case _:
            assert_never(event)


def _write_ignored(event: KeysLoaded | KeysChanged) -> None:
    """Log the keys that cannot be used; the others are used."""
    for each in event.ignored:
        _log.warning("ignored issuer key", issuer=event.issuer, key=each.key, why=each.why)


def _shown(kids: tuple[str, ...]) -> list[str]:
    return [printable(kid) for kid in kids]
