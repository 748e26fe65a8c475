"""How much memory each process has, and whether it grows."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.soak.running_site import World

WARM_UP: Final = 60.0
"""Seconds after its start in which a process may grow."""
JUDGED: Final = 240.0
"""Seconds of samples that it takes to tell growth from noise."""
MOST: Final = 1.0
"""MB per minute that count as flat."""
MOST_IN_ALL: Final = 0.5
"""How much of what it had after its warm-up a process may have got since: crowds may take some, once."""
_EVERY: Final = 2.0
_MEGABYTE: Final = 1024 * 1024


class Growth(NamedTuple):
    """One process."""

    name: str
    seconds: float
    """For how long it was looked at, after its warm-up."""
    megabytes: float
    """What it had in the end."""
    slope: float
    """MB per minute."""
    grown: float
    """MB in all."""

    @property
    def is_judged(self) -> bool:
        return self.seconds >= JUDGED

    @property
    def is_flat(self) -> bool:
        return self.slope <= MOST and self.grown <= MOST_IN_ALL * (self.megabytes - self.grown)


@dataclass
class Memory:
    """Samples of every process."""

    world: World
    _samples: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    async def watch(self) -> None:
        """Look again and again, until this task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            for name, pid in self.world.processes().items():
                with suppress(OSError):
                    self._samples[name.rstrip(" 0123456789"), pid].append((loop.time(), _megabytes(pid)))
            await asyncio.sleep(_EVERY)

    def growths(self) -> list[Growth]:
        """Return the growth of processes that outlived their warm-up, by name and the longest-lived one first."""
        found = []
        for (name, _), samples in self._samples.items():
            later = [each for each in samples if each[0] >= samples[0][0] + WARM_UP]
            if len(later) >= 6:
                seconds = later[-1][0] - later[0][0]
                found.append(Growth(name, seconds, later[-1][1], slope_of(later), grown_of(later)))
        return sorted(found, key=lambda each: (each.name, -each.seconds))


def _megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / _MEGABYTE


def slope_of(samples: Sequence[tuple[float, float]]) -> float:
    """Return the growth in MB per minute: the median of the changes from one minute to the next.

    A leak shows in most minutes. A crowd shows in one: what it needs is often kept for the next one.
    """
    sizes = _minutes(samples)
    return median(after - before for before, after in pairwise(sizes)) if len(sizes) > 1 else 0.0


def grown_of(samples: Sequence[tuple[float, float]]) -> float:
    """Return by how many MB the last minute exceeds the first."""
    sizes = _minutes(samples)
    return sizes[-1] - sizes[0]


def _minutes(samples: Sequence[tuple[float, float]]) -> list[float]:
    begun = samples[0][0]
    found: dict[int, list[float]] = defaultdict(list)
    for time, size in samples:
        found[int((time - begun) // 60)].append(size)
    return [median(sizes) for _, sizes in sorted(found.items())]
