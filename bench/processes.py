"""What processes cost, as the kernel counts it."""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PARENT, _RESIDENT = 1, 21
"""Where they stand in ``/proc/<pid>/stat`` after the name."""


def started_here() -> frozenset[int]:
    """Return the processes that this one started, and those that they started."""
    parents = {int(path.name): _numbers(int(path.name))[_PARENT] for path in Path("/proc").glob("[0-9]*")}
    found = {os.getpid()}
    while True:
        more = {process for process, parent in parents.items() if parent in found} - found
        if not more:
            return frozenset(found - {os.getpid()})
        found |= more


def seconds_used(processes: Collection[int]) -> float:
    """Return the processor time that processes have used so far, to the nanosecond."""
    return sum(map(_seconds, processes))


def bytes_resident(processes: Collection[int]) -> int:
    """Return the memory that processes have."""
    return sum(_numbers(each)[_RESIDENT] for each in processes) * _PAGE


def _seconds(process: int) -> float:
    try:
        # The clock of another process, as clock_getcpuclockid(3) numbers it.
        return time.clock_gettime(~process << 3 | 2)
    except OSError:  # it has ended
        return 0.0


def _numbers(process: int) -> list[int]:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return [0] * 50
    return [0, *map(int, stat.rpartition(")")[2].split()[1:])]
