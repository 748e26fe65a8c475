"""Remembers tokens that were verified, by a hash of their text."""

from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.tokens.verify import Keyring, Trust

LIFETIME: Final = 300.0
"""Seconds for which a verified token is accepted without verifying it again."""
MOST: Final = 10_000
"""Maximum number of remembered tokens; the least recently used is dropped first."""


@dataclass(slots=True)
class TokenCounts:
    """Counts of lookups by result, for metrics."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    """Tokens that went because there was no more room."""


class _Entry(NamedTuple):
    verified: Verified
    trust: Trust
    since: float
    until: float


class TokenCache:
    """Tokens that were verified not long ago.

    An entry ends with the token's ``exp`` (the clock skew applies only when a token is verified again), after the
    cache's lifetime, or when the issuer has other keys or other demands than those it was verified with, whichever
    is first. So another spelling of the same token gains nothing. Failures are not remembered: otherwise a client
    could evict valid tokens with them.
    """

    def __init__(self, *, lifetime: float = LIFETIME, most: int = MOST) -> None:
        self._lifetime = lifetime
        self._most = most
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.counts = TokenCounts()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes, keyring: Keyring, now: float) -> Verified | None:
        """Return what a token proves, if that is cached and still valid."""
        entry = self._entries.get(key)
        if entry is None:
            self.counts.misses += 1
            return None
        verified, trust, since, until = entry
        # A clock that was set back must not lengthen anything.
        if not since <= now < until or keyring.keys_of(verified.issuer) is not trust:
            del self._entries[key]
            self.counts.misses += 1
            return None
        self._entries.move_to_end(key)
        self.counts.hits += 1
        return verified

    def add(self, key: bytes, verified: Verified, trust: Trust, now: float) -> None:
        """Remember what a token proves, as verified at ``now`` with the keys of ``trust``."""
        until = min(verified.expires_at, now + self._lifetime)
        if until <= now:
            return
        self._entries[key] = _Entry(verified, trust, now, until)
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
            self.counts.evictions += 1


def token_key(token: str) -> bytes:
    """Return the cache key of a token: it does not reveal the token, and no other token has the same."""
    return sha256(token.encode(errors="surrogatepass")).digest()
