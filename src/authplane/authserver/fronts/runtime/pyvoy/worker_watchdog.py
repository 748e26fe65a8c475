"""Notices a worker that hangs: one that does not answer, and does nothing either."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

PERIOD: Final = 0.4
"""Seconds between two questions, and that an answer may take."""
IDLE_MISSES: Final = 3
"""Questions without an answer after which a worker hangs that used no processor time meanwhile."""
BUSY_MISSES: Final = 50
"""The same of a worker that uses processor time: a busy machine makes workers slow, and that is not hanging."""


class Watchdog:
    """Counts the questions that a worker leaves without an answer; time is told by how often it is asked."""

    def __init__(self) -> None:
        self._misses = 0
        self._idle = 0
        self._used: int | None = None

    def asked(self, *, answered: bool, used: int | None) -> bool:
        """Take what became of a question, and the processor time of the worker; tell whether it hangs."""
        worked = used != self._used
        self._used = used
        if answered:
            self._misses = self._idle = 0
            return False
        self._misses += 1
        self._idle = 0 if worked else self._idle + 1
        return self._idle >= IDLE_MISSES or self._misses >= BUSY_MISSES


async def hangs(answers: Callable[[float], Awaitable[bool]], process: int) -> None:
    """Return when a worker hangs; ``answers`` asks it, within so many seconds."""
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
