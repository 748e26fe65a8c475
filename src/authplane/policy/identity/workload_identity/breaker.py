"""A circuit breaker: stops calls to a server that does not respond."""

from typing import Final

FAILURES: Final = 5
PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0


class Breaker:
    """Counts failures in a row; after some, it blocks requests for a while, and then allows one to try again."""

    def __init__(self, *, failures: int = FAILURES, pause: float = PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._most = failures
        self._first = pause
        self._longest = longest
        self._failures = 0
        self._pause = pause
        self._closed_until: float | None = None

    def admit(self, now: float) -> bool:
        """Tell whether a request may be sent now; the first one after a pause blocks others until it is answered."""
        if self._closed_until is None:
            return True
        if now < self._closed_until:
            return False
        self._closed_until = now + self._pause
        return True

    def succeeded(self) -> None:
        """Record an answer."""
        self._failures, self._pause, self._closed_until = 0, self._first, None

    def failed(self, now: float) -> None:
        """Record that there was no answer."""
        self._failures += 1
        if self._failures < self._most:
            return
        if self._closed_until is not None:
            self._pause = min(self._pause * 2, self._longest)
        self._closed_until = now + self._pause
