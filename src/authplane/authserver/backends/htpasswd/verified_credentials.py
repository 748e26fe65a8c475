"""Remembers credentials that were verified, without keeping any password."""

import hashlib
from collections import OrderedDict
from typing import Final

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.policy.check.basic import Credentials

LIFETIME: Final = 300.0
"""Seconds for which verified credentials are accepted."""
MOST: Final = 10_000
"""Maximum number of remembered credentials; the least recently used is dropped first."""


@dataclass(slots=True)
class CacheCounts:
    """Counts of lookups by result, for metrics."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    """Entries that went because there was no more room."""


class Verified:
    """Credentials that fitted a stored hash, by a mark that only this process can make.

    A mark covers the stored hash as well, so that another hash for the user ends the memory of the old password.
    Failures are not remembered: they would let a stranger push out the marks of users, and the throttle bounds them.
    """

    def __init__(self, secret: Secret[bytes], *, lifetime: float = LIFETIME, most: int = MOST) -> None:
        self._secret = hashlib.sha256(secret.reveal()).digest()
        self._lifetime = lifetime
        self._most = most
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self.counts = CacheCounts()

    def __len__(self) -> int:
        return len(self._until)

    def mark(self, credentials: Credentials, hashed: bytes) -> bytes:
        """Return the mark of these credentials against this hash."""
        user = credentials.user.encode()
        # With both lengths in front, no two different triples are the same text.
        text = b"%d:%d:%b%b%b" % (len(user), len(hashed), user, hashed, credentials.password)
        # Keyed BLAKE2 is a MAC like HMAC, and takes a third of the time.
        return hashlib.blake2b(text, key=self._secret, digest_size=32).digest()

    def holds(self, mark: bytes, now: float) -> bool:
        """Tell whether the credentials were verified not long ago."""
        until = self._until.get(mark)
        if until is None:
            self.counts.misses += 1
            return False
        # A clock that was set back must not lengthen anything.
        if not now < until <= now + self._lifetime:
            del self._until[mark]
            self.counts.misses += 1
            return False
        self._until.move_to_end(mark)
        self.counts.hits += 1
        return True

    def add(self, mark: bytes, now: float) -> None:
        """Remember credentials that were verified at ``now``."""
        self._until[mark] = now + self._lifetime
        self._until.move_to_end(mark)
        while len(self._until) > self._most:
            self._until.popitem(last=False)
            self.counts.evictions += 1
