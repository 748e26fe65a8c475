"""The time, for callers that pass it on as an argument."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

_UPTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


def stopwatch() -> Callable[[], float]:
    """Start a stopwatch: calling it returns the seconds since."""
    start = time.perf_counter()
    return lambda: time.perf_counter() - start


def uptime() -> float:
    """Return the seconds since the machine started, including those in which it was suspended.

    Only differences mean anything, and nothing sets this clock.
    """
    return time.clock_gettime(_UPTIME)
