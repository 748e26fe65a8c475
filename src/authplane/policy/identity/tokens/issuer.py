"""Keeps the keys of an issuer: a state machine that takes fetched documents, and says what to fetch when.

Times are seconds on a clock that never goes back; how far they are spread is an argument too.
"""

from collections import OrderedDict
from dataclasses import field, replace
from typing import Final, TypeAlias

from authplane.core.strict_json import NotStrict
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.discovery import Metadata, Rejected, discovery_urls, parse_metadata
from authplane.policy.identity.tokens.issuer_events import (
    Fetched,
    FetchFailed,
    IssuerEvent,
    KeysLoaded,
    MetadataChanged,
    keys_changed,
)
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.key_lifetime import Bounds, lifetime
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set
from authplane.policy.identity.tokens.verify import Demands, NotReady, Trust

MOST_KIDS: Final = 1_000
"""How many unknown key names are remembered for an issuer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to fetch the keys of an issuer."""

    jwks_hosts: tuple[str, ...] = ()
    """Hosts besides its own where its keys may be."""
    allow_private_network: bool = False
    ca_pem: str = ""
    """Certificates that vouch for it, and the only ones that do; with ``ca_file`` empty too, those of the system."""
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An issuer as it is configured."""

    url: IssuerUrl
    reach: Reach = field(default_factory=Reach)
    demands: Demands = field(default_factory=Demands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When to fetch keys, in seconds."""

    bounds: Bounds = field(default_factory=Bounds)
    max_stale: float = 24 * 3600.0
    """For how long keys are used after they should have been renewed."""
    between: float = 30.0
    """Seconds between two fetches for missing keys, and after failures while there are keys; also how long a missing
    key is not fetched again."""
    first_retry: float = 1.0
    """Seconds until an issuer that was never reached is tried again; doubled each time, up to ``between``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadata:
    """The next thing to fetch is a discovery document."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchKeys:
    """The next thing to fetch is the key set."""

    url: str


Fetch: TypeAlias = FetchMetadata | FetchKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The HTTP response of an issuer."""

    status: int
    body: bytes = b""
    cache_control: str = ""
    age: str = ""
    date: str = ""
    """The server's clock: the Date header (RFC 9110 §6.6.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of an issuer."""

    issuer: str
    ready: bool
    age: float | None
    """Seconds since its keys were fetched; None if they never were."""
    why: str
    """The last error; empty if there was none."""


class IssuerState:
    """One issuer: its keys, and when they are fetched again."""

    def __init__(self, issuer: Issuer, schedule: Schedule | None = None) -> None:
        self.issuer = issuer
        self._schedule = schedule or Schedule()
        self._places = discovery_urls(issuer.url.url)
        self._place = 0
        self._absent = 0
        self._metadata: Metadata | None = None
        self._metadata_until = 0.0
        self._trust: Trust | None = None
        self._not_ready = NotReady(issuer=issuer.url.url)
        self._fetched_at = 0.0
        self._usable_until = 0.0
        self._asked_at: float | None = None
        self._due = 0.0
        self._failures = 0
        self._why = "its keys are not fetched yet"
        self._looked_for: set[str] = set()
        self._missing: OrderedDict[str, float] = OrderedDict()

    def trust(self, now: float) -> Trust | NotReady:
        """Return the issuer with its keys; the same object as long as neither it nor its keys change."""
        return self._trust if self._trust is not None and now < self._usable_until else self._not_ready

    def standing(self, now: float) -> Standing:
        """Return the state of the issuer."""
        ready = isinstance(self.trust(now), Trust)
        age = None if self._trust is None else max(0.0, now - self._fetched_at)
        return Standing(issuer=self.issuer.url.url, ready=ready, age=age, why=self._why)

    def due(self) -> float:
        """Return when the next fetch is to begin."""
        return self._due

    def fetch(self, now: float) -> Fetch:
        """Return what to fetch; the caller passes the outcome to `answered` or `failed` before it calls this again."""
        self._asked_at = now
        if self._metadata is not None and now < self._metadata_until:
            return FetchKeys(url=self._metadata.jwks_uri)
        return FetchMetadata(url=self._places[self._place])

    def wanted(self, kid: str, now: float) -> bool:
        """Note that a token needs a key that is not there, or another key under a name that is there.

        Tells whether that brings the next fetch forward: at most one in ``between`` seconds, whatever tokens come.
        """
        if self._trust is None or self._missing.get(kid, now) > now:
            return False
        if len(self._looked_for) < MOST_KIDS:
            self._looked_for.add(kid)
        asked_at = self._asked_at
        due = now if asked_at is None else max(now, asked_at + self._schedule.between)
        if due >= self._due:
            return False
        self._due = due
        return True

    def answered(self, fetch: Fetch, answer: HttpAnswer, now: float, spread: float) -> tuple[IssuerEvent, ...]:
        """Take an answer; ``spread`` is random, from 0 to 1, so that not all processes fetch at once."""
        if isinstance(fetch, FetchMetadata) and _says_absent(answer.status) and self._absent + 1 < len(self._places):
            self._absent += 1
            self._place = (self._place + 1) % len(self._places)
            self._due = now
            return ()
        if answer.status != 200:
            return self.failed(fetch, f"HTTP status {answer.status}", now, spread)
        if isinstance(fetch, FetchMetadata):
            return self._take_metadata(fetch, answer, now, spread)
        return self._take_keys(fetch, answer, now, spread)

    def failed(self, fetch: Fetch, why: str, now: float, spread: float) -> tuple[IssuerEvent, ...]:
        """Record that no usable answer came: known keys stay, and the issuer is tried again later."""
        self._absent = 0
        self._why = why
        # The keys may have moved: begin with the discovery document next time.
        self._metadata_until = 0.0
        longest, first = self._schedule.between, self._schedule.first_retry
        delay = longest if self._trust is not None else min(longest, first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        # Never sooner if there are keys: otherwise tokens with unknown keys could cause requests.
        self._due = now + delay * (1 + spread / 2 if self._trust is not None else 0.5 + spread / 2)
        return (FetchFailed(issuer=self.issuer.url.url, url=fetch.url, why=why),)

    def reconfigure(self, issuer: Issuer) -> bool:
        """Apply another configuration, and keep the keys; False if the keys must be fetched differently."""
        if (issuer.url, issuer.reach) != (self.issuer.url, self.issuer.reach):
            return False
        if issuer != self.issuer:
            self.issuer = issuer
            if self._trust is not None:
                self._trust = replace(self._trust, demands=issuer.demands)
        return True

    def _take_metadata(self, fetch: Fetch, answer: HttpAnswer, now: float, spread: float) -> tuple[IssuerEvent, ...]:
        found = parse_metadata(answer.body, self.issuer.url, self.issuer.reach.jwks_hosts)
        if isinstance(found, Rejected):
            return self.failed(fetch, found.why, now, spread)
        before, self._metadata = self._metadata, found
        self._absent = 0
        self._metadata_until = now + lifetime(answer.cache_control, answer.age, self._schedule.bounds)
        self._due = now
        fetched = Fetched(issuer=self.issuer.url.url, url=fetch.url)
        if before is None or before == found:
            return (fetched,)
        return fetched, MetadataChanged(issuer=self.issuer.url.url, before=before, after=found)

    def _take_keys(self, fetch: Fetch, answer: HttpAnswer, now: float, spread: float) -> tuple[IssuerEvent, ...]:
        keys = parse_key_set(answer.body)
        if isinstance(keys, NotStrict):
            return self.failed(fetch, f"the key set is invalid: {keys.why}", now, spread)
        fresh_for = lifetime(answer.cache_control, answer.age, self._schedule.bounds)
        self._failures, self._why = 0, ""
        self._fetched_at, self._usable_until = now, now + fresh_for + self._schedule.max_stale
        self._due = now + fresh_for * (0.9 + spread / 10)
        self._note_missing(keys, now)
        return Fetched(issuer=self.issuer.url.url, url=fetch.url), *self._replace_keys(keys)

    def _replace_keys(self, keys: KeySet) -> tuple[IssuerEvent, ...]:
        before = self._trust
        if before is not None and before.keys == keys:
            return ()
        url = self.issuer.url.url
        self._trust = Trust(issuer=url, demands=self.issuer.demands, keys=keys)
        if before is None:
            return (KeysLoaded(issuer=url, keys=tuple(sorted(keys.labelled())), ignored=keys.ignored),)
        return (keys_changed(url, before.keys, keys),)

    def _note_missing(self, keys: KeySet, now: float) -> None:
        until = now + self._schedule.between
        for kid in self._looked_for:
            if not keys.named(kid):
                self._missing[kid] = until
                self._missing.move_to_end(kid)
        self._looked_for.clear()
        while len(self._missing) > MOST_KIDS:
            self._missing.popitem(last=False)


def _says_absent(status: int) -> bool:
    """Tell whether a status means that there is no such document, and not that something is wrong now."""
    return 400 <= status < 500 and status not in {408, 429}
