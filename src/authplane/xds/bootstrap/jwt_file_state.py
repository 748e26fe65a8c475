"""Call credentials from a file with a JWT: when to read it, and the outcome of each call (gRFC A97).

A state machine: calls and finished reads come in with the time, answers go out. Nothing is read unless a call starts.
"""

from typing import Final, TypeAlias

from authplane.core.backoff import backoff_delay
from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.xds.bootstrap.jwt_token import NotToken, Token, parse_token

_EARLY: Final = 30.0
"""A token counts as expired so many seconds before it is: clocks differ, and the server needs time as well."""
_WRITE: Final = "Write a new token to the file."
_REFRESH: Final = 60.0
"""With at most so many seconds left a token is read again, so that calls need not wait for it later."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time on both clocks."""

    wall: float
    """Seconds since 1970, as tokens count."""
    steady: float
    """Seconds of a monotonic clock, for delays."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The call goes on with this token."""

    token: Secret[str]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The call fails: the file cannot be read. Another attempt may succeed."""

    message: str


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """The call fails: the file has no token, or an expired one."""

    message: str


Failure: TypeAlias = Unavailable | Unauthenticated
Answer: TypeAlias = Bearer | Failure


@dataclass(frozen=True, slots=True)
class Queued:
    """The call waits for the read that is going on, and gets its result."""


@dataclass(frozen=True, slots=True)
class Started:
    """What becomes of a call that starts."""

    answer: Answer | Queued
    read: bool
    """Whether the file is to be read now."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A read that failed."""

    why: str


class JwtFile:
    """The token of one file, as far as it is known."""

    def __init__(self) -> None:
        self._token: Token | None = None
        self._reading = False
        self._failures = 0
        self._failure: Failure | None = None
        self._refused = False
        """Whether a server has refused the token."""
        self._doubts = 0
        """How many reads in a row ended with this token, while there is doubt about it."""
        self._retry_at = 0.0

    def call_started(self, now: Moment) -> Started:
        """Decide on a call; if the result says to read the file, the caller reads it and reports the outcome."""
        left = -1.0 if self._token is None else _left(self._token, now)
        read = (left <= _REFRESH or self._is_doubted()) and self._may_read(now)
        self._reading |= read
        if self._token is not None and left > 0:
            return Started(Bearer(self._token.text), read)
        if self._failure is not None and not self._reading:
            return Started(self._failure, read)
        return Started(Queued(), read)

    def call_refused(self, token: Secret[str], now: Moment) -> bool:
        """Record that a server did not accept a token; tell whether the caller should read the file now.

        The file may have another one by now: that of an issuer whose keys have changed, or the rest of one that was
        read before its writer had finished.
        """
        if self._token is None or self._token.text != token:
            return False
        self._refused = True
        read = self._may_read(now)
        self._reading |= read
        return read

    def read_ended(self, content: bytes | Unreadable, now: Moment, draw: float) -> Answer:
        """Take the content of the file; the answer is for every waiting call. ``draw`` is random, from 0 up to 1."""
        self._reading = False
        found = self._better(_usable(content, now), now)
        if isinstance(found, Token):
            same = self._token is not None and self._token.text == found.text
            self._refused &= same
            self._token, self._failures, self._failure = found, 0, None
            self._doubts = (self._doubts + 1 if same else 1) if self._is_doubted() else 0
            if self._doubts:
                self._retry_at = now.steady + backoff_delay(self._doubts, draw)
            return Bearer(found.text)
        self._failures += 1
        self._failure = found
        self._retry_at = now.steady + backoff_delay(self._failures, draw)
        return found

    def _better(self, found: Token | Failure, now: Moment) -> Token | Failure:
        """Refuse a token that seems to be cut off while there is one that is whole."""
        known = self._token
        if isinstance(found, Token) and not found.whole and known is not None and known.whole and _left(known, now) > 0:
            return Unauthenticated(f"The token file has no usable token: the signature seems to be cut off. {_WRITE}")
        return found

    def _is_doubted(self) -> bool:
        return self._token is not None and (self._refused or not self._token.whole)

    def _may_read(self, now: Moment) -> bool:
        waits = self._failure is not None or self._doubts > 0
        return not self._reading and not (waits and now.steady < self._retry_at)


def _left(token: Token, now: Moment) -> float:
    return token.expires - _EARLY - now.wall


def _usable(content: bytes | Unreadable, now: Moment) -> Token | Failure:
    if isinstance(content, Unreadable):
        return Unavailable(f"Cannot read the token file: {content.why}. Check its path and permissions.")
    found = parse_token(content)
    if isinstance(found, NotToken):
        return Unauthenticated(f"The token file has no usable token: {found.why}. {_WRITE}")
    if _left(found, now) <= 0:
        return Unauthenticated(f"The token in the token file has expired, or expires within 30 seconds. {_WRITE}")
    return found
