"""Limits how often passwords can be guessed."""

from collections import OrderedDict
from ipaddress import ip_address, ip_network
from typing import Final

from authplane.core.values import dataclass

MOST: Final = 10_000
"""How many buckets of a kind are kept; the one that was used longest ago goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many attempts at once, and so many more each second."""

    burst: float
    per_second: float


PER_USER: Final = Rate(burst=20, per_second=1)
PER_SOURCE: Final = Rate(burst=60, per_second=5)


class Buckets:
    """A bucket of tokens for each key; one that is full again is forgotten when room is needed."""

    def __init__(self, rate: Rate, *, most: int = MOST) -> None:
        self._rate = rate
        self._most = most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def wait(self, key: str, now: float) -> float:
        """Return after how many seconds there is a token; zero means now."""
        return max(0.0, 1 - self._level(key, now)) / self._rate.per_second

    def add(self, key: str, tokens: int, now: float) -> None:
        """Take a token (-1) or put one back (1), which may be later than others were taken: no time passes by it."""
        if tokens > 0:
            level, then = self._levels.get(key, (self._rate.burst, now))
        else:
            level, then = self._level(key, now), now
        self._levels[key] = (min(self._rate.burst, level + tokens), then)
        self._levels.move_to_end(key)
        while len(self._levels) > self._most:
            self._levels.popitem(last=False)

    def _level(self, key: str, now: float) -> float:
        level, then = self._levels.get(key, (self._rate.burst, now))
        # A clock that was set back fills nothing.
        return min(self._rate.burst, level + max(0.0, now - then) * self._rate.per_second)


class Throttle:
    """Counts attempts for a user and from an address; those that succeed are put back.

    An attempt is counted before its work begins, so that many at once cannot exceed the limit.
    """

    def __init__(self, *, per_user: Rate = PER_USER, per_source: Rate = PER_SOURCE, most: int = MOST) -> None:
        self._users = Buckets(per_user, most=most)
        self._sources = Buckets(per_source, most=most)

    def __len__(self) -> int:
        return len(self._users) + len(self._sources)

    def take(self, user: str, source: str, now: float) -> float:
        """Count an attempt; what it has to wait instead, in seconds, if there were too many."""
        wait = max(self._users.wait(user, now), self._sources.wait(source, now) if source else 0.0)
        if not wait:
            self._add(user, source, -1, now)
        return wait

    def put_back(self, user: str, source: str, now: float) -> None:
        """Do not count an attempt that was no failure and began at ``now``."""
        self._add(user, source, 1, now)

    def _add(self, user: str, source: str, tokens: int, now: float) -> None:
        self._users.add(user, tokens, now)
        if source:
            self._sources.add(source, tokens, now)


def source_of(address: str) -> str:
    """Return what counts as one source: an IPv4 address, or an IPv6 network of 64 bits, which is one customer's.

    What is not an IP address, such as the path of a socket, tells nothing of the client: it is empty.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    if mapped is not None or parsed.version == 4:
        return str(mapped or parsed)
    return str(ip_network((int(parsed) >> 64 << 64, 64)))
