"""Runs a limited number of expensive computations beside the event loop."""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Self

from authplane.policy.verdicts.effects import Busy, Effect, Outcome, Work

THREADS: Final = 2
LIMIT: Final = 32
"""Maximum number of running and pending computations; further ones are rejected immediately."""
MOST_LEFT: Final = 64
"""Number of outcomes to keep without a waiting caller; the oldest is dropped first."""
_TURN: Final = 0.0005
"""Seconds for which a thread may keep the interpreter while the event loop waits for it.

The older hashes are computed in Python. With the default of 5 ms, two threads that pass the interpreter to one another
block the event loop for tens of milliseconds.
"""


class HashPool:
    """Performs the work of flows on a few threads, while the context lasts.

    Equal works share one run. The pool does not start a work without a waiting caller. It finishes a work that has
    started, and the next caller gets the outcome immediately: otherwise a proxy whose timeout is shorter than a hash
    would never get an answer, however often it retries.
    """

    def __init__(self, *, threads: int = THREADS, limit: int = LIMIT) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="authplane-hash")
        self._limit = limit
        self._runs: dict[Work, _Run] = {}
        self._left: OrderedDict[bytes, bool] = OrderedDict()
        self._turn_before = sys.getswitchinterval()

    def __enter__(self) -> Self:
        self._turn_before = sys.getswitchinterval()
        sys.setswitchinterval(min(_TURN, self._turn_before))
        return self

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self._turn_before)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def __len__(self) -> int:
        return len(self._runs)

    async def perform(self, effect: Effect) -> Outcome:
        """Run a work and return its result, or `Busy` at once; raises what the work raises."""
        if not isinstance(effect, Work):
            return Busy()  # this pool performs work only
        known = self._left.pop(effect.key, None)
        if known is not None:
            return known
        run = self._runs.get(effect)
        if run is None or run.future.cancelled():
            if len(self._runs) >= self._limit:
                return Busy()
            run = self._begin(effect)
        with run.awaited():
            return await asyncio.shield(run.future)

    def _begin(self, effect: Work) -> "_Run":
        run = _Run(self._executor.submit(effect.run))
        self._runs[effect] = run
        run.future.add_done_callback(lambda _: self._end(effect, run))
        return run

    def _end(self, effect: Work, run: "_Run") -> None:
        # A cancelled run may have been started again meanwhile.
        if self._runs.get(effect) is run:
            del self._runs[effect]
        if run.alone and not run.future.cancelled() and run.future.exception() is None and effect.key:
            self._left[effect.key] = run.future.result()
            while len(self._left) > MOST_LEFT:
                self._left.popitem(last=False)


class _Run:
    """A work in progress and how many wait for it."""

    def __init__(self, working: Future[bool]) -> None:
        self.future = asyncio.wrap_future(working)
        self._working = working
        self._waiting = 0

    @property
    def alone(self) -> bool:
        """Whether no check waits."""
        return not self._waiting

    @contextmanager
    def awaited(self) -> Generator[None]:
        """Count the caller as waiting; when the last one leaves, work that has not begun is cancelled."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self.alone and self._working.cancel():
                self.future.cancel()
