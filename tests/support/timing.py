"""Time measured on a machine that does other things as well."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

TIMES: Final = 3
_PATIENCE: Final = 120.0
_T = TypeVar("_T")
_WORK: Final = 0.1
"""Seconds of processor time that are enough to meet the programs with which we share the processors."""


def slowness() -> float:
    """Return how many times longer work takes here than it would alone, at least once.

    A bar in seconds is meant for a machine that has time for us: where every program gets a tenth of a processor, a
    limit times ten proves as much. Nothing else of this process may run meanwhile.
    """
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < _WORK:
        pass
    return max(1.0, (time.monotonic() - begun) / _WORK)


async def within(seconds: float, awaited: Awaitable[_T]) -> _T:
    """Wait for what must come within so many seconds on a machine that has time for us; fail if it takes longer."""
    begun, slow = time.monotonic(), slowness()
    async with asyncio.timeout(_PATIENCE):
        result = await awaited
    took = time.monotonic() - begun
    allowed = seconds * max(slow, slowness())
    assert took < allowed, f"it took {took:.2f} s and not {allowed:.2f} s"
    return result


def quickest(measure: Callable[[], float]) -> float:
    """Return the least of a few measurements: other programs and the garbage of other tests only ever add to one."""
    return min(measure() for _ in range(TIMES))
