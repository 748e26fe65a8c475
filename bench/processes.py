"""What processes cost, as the kernel counts it."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PARENT, _USER, _SYSTEM, _RESIDENT = 1, 11, 12, 21
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
    """Return the processor time that processes have used so far."""
    return sum(_numbers(each)[_USER] + _numbers(each)[_SYSTEM] for each in processes) / _TICK


def bytes_resident(processes: Collection[int]) -> int:
    """Return the memory that processes have."""
    return sum(_numbers(each)[_RESIDENT] for each in processes) * _PAGE


def _numbers(process: int) -> list[int]:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return [0] * 50
    return [0, *map(int, stat.rpartition(")")[2].split()[1:])]
