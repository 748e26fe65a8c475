"""The dependencies of filters: randomness, clocks, counters and a log."""

import logging
import threading
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Final, TypeAlias

from authplane.dataplane.filters.registry import Kept, State

Count: TypeAlias = Callable[[str, str], None]
"""Adds one to a metric: its name, and the target of the channel (empty for servers). Must be quick."""

_log: Final = logging.getLogger("authplane.grpc")
_random: Final = SystemRandom()
_PAUSE: Final = 1.0
"""Seconds between two sentences of filters: while a service is away there is one for each call."""


class Teller:
    """Writes sentences of filters to the log, few enough to be read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._skipped = 0
        self._lock = threading.Lock()

    def __call__(self, sentence: str) -> None:
        """Write a sentence, or count it."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                self._skipped += 1
                return
            skipped, self._skipped, self._next = self._skipped, 0, now + _PAUSE
        more = f" ({skipped} similar lines omitted)" if skipped else ""
        _log.warning("%s%s", sentence, more)


def filter_state(count: Count | None, tell: Callable[[str], None], kept: Kept) -> State:
    """Return what filters are built with."""
    if count is None:
        return State(random=_random.random, monotonic=time.monotonic, tell=tell, kept=kept)
    return State(random=_random.random, monotonic=time.monotonic, count=count, tell=tell, kept=kept)
