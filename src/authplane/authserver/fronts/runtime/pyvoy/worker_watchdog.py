"""Detects a worker that hangs: it does not answer and uses no processor time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

PERIOD: Final = 0.4
"""Seconds between two probes, and the time limit of an answer."""
IDLE_MISSES: Final = 3
"""Unanswered probes in a row after which a worker hangs, if it used no processor time meanwhile."""
BUSY_MISSES: Final = 50
"""The same for a worker that uses processor time: on a busy machine workers are slow, which is not hanging."""


class Watchdog:
    """Counts the probes that a worker does not answer; the number of calls measures time."""

    def __init__(self) -> None:
        self._misses = 0
        self._idle = 0
        self._used: int | None = None

    def asked(self, *, answered: bool, used: int | None) -> bool:
        """Record the result of a probe and the worker's processor time; tell whether the worker hangs."""
        worked = used != self._used
        self._used = used
        if answered:
            self._misses = self._idle = 0
            return False
        self._misses += 1
        self._idle = 0 if worked else self._idle + 1
        return self._idle >= IDLE_MISSES or self._misses >= BUSY_MISSES


async def hangs(answers: Callable[[float], Awaitable[bool]], process: int) -> None:
    """Return when a worker hangs; ``answers`` probes it, within so many seconds."""
    watchdog = Watchdog()
    while True:
        answered = await answers(PERIOD)
        if watchdog.asked(answered=answered, used=processor_time(process)):
            return
        if answered:
            await asyncio.sleep(PERIOD)


def processor_time(process: int) -> int | None:
    """Return the processor time of a process and all its threads, in ticks of the system; None if it is gone."""
    try:
        # From the third field on: the name, which may have spaces, is before them.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])
