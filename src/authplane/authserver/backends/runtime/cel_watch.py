"""Evaluates expressions and stops those that are slow again and again."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

import structlog

from authplane.cel.check.expression_outcome import Code, Failed, Outcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.evaluate.facts import Lookup
from authplane.cel.evaluate.slow_programs import PATIENCE, QUICK, Pace, Patience

_log: Final = structlog.stdlib.get_logger()
_MOST: Final = 1000
_TRIPPED: Final = Failed(Code.TRIPPED)


class WatchedExpressions:
    """An `Evaluate` that remembers the pace of programs that were slow."""

    def __init__(self, patience: Patience = PATIENCE, clock: Callable[[], float] = perf_counter) -> None:
        self._patience = patience
        self._clock = clock
        self._paces: dict[Program, Pace] = {}

    def __call__(self, program: Program, lookup: Lookup) -> Outcome:
        """Evaluate, unless the program has to rest."""
        begun = self._clock()
        # Nearly always empty: then no program has to be looked up.
        if self._paces and not self._paces.get(program, QUICK).may_run(begun):
            return _TRIPPED
        outcome = evaluate(program, lookup)
        ended = self._clock()
        if ended - begun >= self._patience.slow:
            self._note(program, ended - begun, ended)
        return outcome

    def _note(self, program: Program, seconds: float, now: float) -> None:
        if len(self._paces) >= _MOST:
            self._paces.clear()
        pace = self._paces[program] = self._paces.get(program, QUICK).took(seconds, now, self._patience)
        if not pace.may_run(now):
            _log.error("suspended a slow expression", expression=program.text)
