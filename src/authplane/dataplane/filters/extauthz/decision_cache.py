"""Caches decisions. This goes beyond gRFC A92 and is off by default.

The key of a call covers everything that a check shows to the service, except the time and the client's port: two calls
share a decision only if the service could not distinguish them.
"""

from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from typing import Final

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Flight, Metadata
from authplane.dataplane.filters.extauthz.service_decision import Allow, Decision
from authplane.xds.bootstrap.jwt_token import Token, parse_token

IDENTITY: Final = "authorization"
"""The header that is always part of the key."""
_LARGEST: Final = 16_384
"""Maximum bytes of headers of a cached decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """The lifetimes of cached decisions, and the calls that share them."""

    headers: tuple[str, ...] = ()
    """Headers that the service decides by, besides ``authorization``. Checks contain no others."""
    allow_ttl: float = 10.0
    """Maximum seconds that an allowed call stays cached."""
    deny_ttl: float = 1.0
    """Maximum seconds that a denied call stays cached; 0 caches no denials."""
    most: int = 10_000
    """Maximum number of cached decisions; the least recently used one is dropped first."""
    by_address: bool = True
    """Whether checks contain the client's address; if not, clients at different addresses share decisions."""

    def __post_init__(self) -> None:
        if self.most < 1 or self.allow_ttl < 0 or self.deny_ttl < 0:
            raise ValueError(
                "The cache has no room for a decision, or a lifetime is negative. Set most to 1 or more,"
                " and each lifetime to 0 or more."
            )
        object.__setattr__(self, "headers", tuple(sorted({name.lower() for name in self.headers} | {IDENTITY})))


class DecisionCache:
    """Recent decisions and pending checks. Thread-safe."""

    __slots__ = ("_caching", "_decisions", "_flights")

    def __init__(self, caching: Caching) -> None:
        self._caching = caching
        self._decisions: OrderedDict[bytes, tuple[Decision, float]] = OrderedDict()
        self._flights: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._decisions)

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers in the key."""
        return self._caching.headers

    def find(self, key: bytes, now: float) -> Decision | None:
        """Return the cached decision for a call, if it is still valid."""
        found = self._decisions.get(key)
        if found is None:
            return None
        decision, until = found
        try:
            if now < until:
                self._decisions.move_to_end(key)
                return decision
            del self._decisions[key]
        except KeyError:
            # Another thread has just dropped it; what was found is as good as before.
            return decision if now < until else None
        return None

    def add(self, key: bytes, decision: Decision, now: float, lifetime: float | None) -> None:
        """Cache a decision, at most as long as the service allows and at most ``lifetime`` seconds."""
        ttl = self._caching.allow_ttl if isinstance(decision, Allow) else self._caching.deny_ttl
        ttl = min(limit for limit in (ttl, decision.max_age, lifetime) if limit is not None)
        if ttl <= 0 or _size(decision) > _LARGEST:
            self._decisions.pop(key, None)
            return
        self._decisions[key] = (decision, now + ttl)
        # Several threads may drop the last one at the same time.
        with suppress(KeyError):
            while len(self._decisions) > self._caching.most:
                self._decisions.popitem(last=False)

    def board(self, key: bytes) -> tuple[Flight, bool]:
        """Return the pending check of a call, and whether the caller must send it."""
        mine = Flight()
        flight = self._flights.setdefault(key, mine)
        return flight, flight is mine

    def land(self, key: bytes, flight: Flight) -> None:
        """End a pending check, with or without a decision."""
        self._flights.pop(key, None)
        flight.end()


def lifetime_of(metadata: Metadata, names: tuple[str, ...], now: datetime) -> float | None:
    """Return the remaining lifetime of the tokens in headers, in seconds; None if no token has one.

    Tokens are not verified here: the service does that, and a forged lifetime only shortens the cache entry.
    """
    ends = [
        token.expires
        for name, value in metadata
        if name in names and isinstance(value, str)
        if isinstance(token := parse_token(value.rpartition(" ")[2].encode(errors="replace")), Token)
    ]
    return min(ends) - now.timestamp() if ends else None


def _size(decision: Decision) -> int:
    if isinstance(decision, Allow):
        edits = decision.edits
        pairs = [(each.key, each.value) for each in (*edits.mutations, *decision.response_mutations)]
        pairs += [*decision.response_metadata, *((name, "") for name in edits.removals)]
    else:
        pairs = list(decision.trailers)
    return sum(len(key) + len(value) for key, value in pairs)
