"""Time measured on a machine that does other things as well."""

import time
from collections.abc import Callable
from typing import Final

TIMES: Final = 3
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


def quickest(measure: Callable[[], float]) -> float:
    """Return the least of a few measurements: other programs and the garbage of other tests only ever add to one."""
    return min(measure() for _ in range(TIMES))
