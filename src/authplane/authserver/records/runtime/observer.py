"""Reports every check to the decision log, the metrics and the traces.

A front calls `began`, then one of `decided`, `failed` and `late`; or `passed` or `shed` alone. None of them raises or
waits: a check gets its answer even if recording fails. The answer contains all that is recorded.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, Self, TypeAlias

import structlog

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import (
    Conclusion,
    Entry,
    build_entry,
    build_record,
    build_undecided,
    conclusion_of,
)
from authplane.authserver.records.policy_record import entry_line, is_small
from authplane.authserver.records.runtime.metrics import CheckMetrics
from authplane.authserver.records.runtime.traces import NO_TRACE, CallerTrace, NoTraces, Traces
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.verdict import Verdict
from authplane.runtime.child_processes import place_of

_log: Final = structlog.stdlib.get_logger()

Clock: TypeAlias = Callable[[], float]
"""Returns the seconds since 1970."""


class Lines(Protocol):
    """Takes the lines of the decision log, at once."""

    def write(self, line: Entry | str) -> None:
        """Take a line with its end, or what it is made of."""


RecordVerdict: TypeAlias = Callable[[Answer, Verdict], None]
"""Takes an answer with its verdict, at once."""


_Count: TypeAlias = Callable[[Conclusion, float], None]
"""Counts a check that has ended, with how and after how many seconds."""


class Observer:
    """Tells of the checks of one backend."""

    def __init__(  # noqa: PLR0913 (all but two have a default)
        self,
        backend: str,
        metrics: CheckMetrics,
        *,
        lines: Lines | None = None,
        traces: Traces | None = None,
        clock: Clock = time.time,
        verdicts: tuple[RecordVerdict, ...] = (),
    ) -> None:
        self._backend = backend
        self._verdicts = verdicts
        self._metrics = metrics
        self._lines = lines
        self._traces = traces or NoTraces()
        self._clock = clock
        self._shows = lines is not None or self._traces.on
        """Whether a decision log or traces are on, besides metrics."""

    @property
    def traces(self) -> bool:
        """Whether the caller's trace is of use: if not, a front need not look for it."""
        return self._traces.on

    def of(self, _backend: str, /) -> Self:
        """Return the observer of a backend's checks: this one."""
        return self

    def began(self) -> None:
        """Record a check that begins."""
        try:
            self._metrics.began()
        except Exception as error:  # noqa: BLE001 (nothing here may change an answer)
            _complain(error)

    def decided(self, made: Answer, seconds: float, caller: CallerTrace = NO_TRACE) -> None:
        """Record an answer and how long it took."""
        self._ended(made, seconds, caller, self._metrics.ended)

    def passed(self, made: Answer, seconds: float, caller: CallerTrace = NO_TRACE) -> None:
        """Record an answer to a check that ended as soon as it began."""
        self._ended(made, seconds, caller, self._metrics.passed)

    def _ended(self, made: Answer, seconds: float, caller: CallerTrace, count: _Count) -> None:
        entry: Entry | None = None
        try:
            if self._shows:
                entry = build_entry(made, backend=self._backend, now=self._clock(), seconds=seconds)
                conclusion = entry.decision
            else:
                conclusion = conclusion_of(made.decision)
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)
            # Counted all the same: the check is in flight no longer.
            self._undecided(Conclusion.FAILED, "the decision cannot be described", seconds, caller, count=count)
            return
        # Each is reported on its own: if one fails, the next still gets its record.
        try:
            count(conclusion, seconds)
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)
        if made.verdict is not None:
            self._record(made, made.verdict)
        if entry is not None:
            self._show(entry, caller)

    def failed(
        self,
        error: Exception,
        seconds: float,
        caller: CallerTrace = NO_TRACE,
        request: Request | Malformed | None = None,
    ) -> None:
        """Record a check whose backend raised; the error's message is not repeated."""
        self._undecided(Conclusion.FAILED, place_of(error), seconds, caller, request)

    def late(self, seconds: float, caller: CallerTrace = NO_TRACE, request: Request | Malformed | None = None) -> None:
        """Record a check without a decision in time."""
        self._undecided(Conclusion.UNAVAILABLE, "no decision in time", seconds, caller, request)

    def shed(self) -> None:
        """Record a check that was rejected before it began, because too many are pending.

        It is only counted: the check was not read, so there is nothing to log, and the server is already overloaded.
        """
        try:
            self._metrics.shed()
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)

    def _undecided(  # noqa: PLR0913 (all that is known)
        self,
        conclusion: Conclusion,
        reason: str,
        seconds: float,
        caller: CallerTrace,
        request: Request | Malformed | None = None,
        *,
        count: _Count | None = None,
    ) -> None:
        try:
            (count or self._metrics.ended)(conclusion, seconds)
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)
        if self._shows:
            backend, now = self._backend, self._clock()
            known = partial(build_undecided, conclusion, reason, backend=backend, now=now, seconds=seconds)
            try:
                entry = known(request=request)
            except Exception as error:  # noqa: BLE001 (as above)
                _complain(error)
                entry = known()
            self._show(entry, caller)

    def _record(self, made: Answer, verdict: Verdict) -> None:
        try:
            for record in self._verdicts:
                record(made, verdict)
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)

    def _show(self, entry: Entry, caller: CallerTrace) -> None:
        try:
            if self._lines is not None:
                self._lines.write(entry if is_small(entry) else entry_line(entry))
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)
        try:
            if self._traces.on:
                self._traces.tell(build_record(entry), caller)
        except Exception as error:  # noqa: BLE001 (as above)
            _complain(error)


class Observers:
    """The observers of several backends, found by the name of the backend that an answer gives.

    ``nobody`` observes the checks that no backend received.
    """

    def __init__(self, by_backend: Mapping[str, Observer], nobody: Observer) -> None:
        self._by_backend = by_backend
        self._nobody = nobody

    @property
    def traces(self) -> bool:
        """Whether the caller's trace is of use."""
        return self._nobody.traces

    def of(self, backend: str, /) -> Observer:
        """Return the observer of a backend's checks."""
        return self._by_backend.get(backend, self._nobody)


def _complain(error: Exception) -> None:
    with contextlib.suppress(Exception):
        _log.error("failed to record a decision", error=place_of(error))
