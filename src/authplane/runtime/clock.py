"""The time, for callers that pass it on as an argument."""

import time
from collections.abc import Callable
from datetime import UTC, datetime


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


def stopwatch() -> Callable[[], float]:
    """Start a stopwatch: calling it returns the seconds since."""
    start = time.perf_counter()
    return lambda: time.perf_counter() - start
