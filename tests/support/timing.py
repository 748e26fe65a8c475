"""Time measured on a machine that does other things as well."""

from collections.abc import Callable
from typing import Final

TIMES: Final = 3


def quickest(measure: Callable[[], float]) -> float:
    """Return the least of a few measurements: other programs and the garbage of other tests only ever add to one."""
    return min(measure() for _ in range(TIMES))
