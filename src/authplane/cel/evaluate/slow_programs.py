"""Stops programs that are slow repeatedly: a single-threaded server has no time for them."""

from dataclasses import replace
from typing import Final

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What is too slow, and how often."""

    slow: float = 0.05
    """An evaluation of so many seconds is slow."""
    most: int = 5
    """So many slow ones trip the program..."""
    within: float = 60
    """...if they come within so many seconds."""
    rest: float = 60
    """So long does a tripped program deny; then it is tried again."""


PATIENCE: Final = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How slow one program was of late."""

    slow: tuple[float, ...] = ()
    """When its slow evaluations were."""
    until: float | None = None
    """When a program that tripped may run again."""

    def may_run(self, now: float) -> bool:
        """Tell whether to evaluate the program; if not, it fails with `Code.TRIPPED`."""
        return self.until is None or now >= self.until

    def took(self, seconds: float, now: float, patience: Patience = PATIENCE) -> "Pace":
        """Return the pace after an evaluation; the same object if it was quick."""
        if seconds < patience.slow:
            return self
        slow = (*(each for each in self.slow if now - each < patience.within), now)
        if len(slow) < patience.most:
            return replace(self, slow=slow)
        return Pace(until=now + patience.rest)


QUICK: Final = Pace()
