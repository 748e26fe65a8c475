"""Matchers that evaluate an expression."""

from collections.abc import Hashable
from typing import Final, Protocol, TypeAlias

from authplane.cel.calls.call_vocabulary import HEADERS
from authplane.cel.check.expression_outcome import HOLDS, Outcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.evaluation import evaluate, evaluate_text
from authplane.cel.evaluate.facts import Fact
from authplane.core.values import dataclass

Reads: TypeAlias = tuple[tuple[str, tuple[str, ...] | None], ...]
"""Variables by their dotted names, each with the keys of a map that are read; None means the whole."""

_MOST_KNOWN: Final = 256
"""Of one expression: clients choose the values, so there can be many."""


class Attributes(Protocol):
    """What expressions read of a call; each is made when an expression that reads it is evaluated."""

    def headers(self, names: tuple[str, ...] | None) -> Fact:
        """Return the values of these headers by the names as given; None means all of them."""

    def fact(self, name: str) -> Fact:
        """Return any other attribute by its dotted name."""

    def seen(self, reads: Reads) -> tuple[Hashable, ...] | None:
        """Return what is equal for calls that look the same to an expression; None if that is not worth keeping."""


class ExpressionMatcher:
    """Matches if the expression is true; an error, or a result that is no bool, is no match.

    What it came to for the last calls is remembered: an expression says the same of the same values, and to look at
    them takes much less time. Calls of a server are alike. Safe to use from several threads.
    """

    # Not a dataclass: who looks through configurations shall not find what is remembered.
    __slots__ = ("_headers", "_known", "_reads", "program")

    def __init__(self, program: Program) -> None:
        self.program: Final = program
        self._headers = _headers_read(program)
        self._reads: Reads = tuple((step.variable, step.keys) for step in program.steps)
        self._known: dict[tuple[Hashable, ...], bool] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpressionMatcher) and self.program == other.program

    def __hash__(self) -> int:
        return hash((ExpressionMatcher, self.program.text))

    def __repr__(self) -> str:
        return f"ExpressionMatcher({self.program.text!r})"

    def __str__(self) -> str:
        return f"satisfies {self.program.text}"

    def matches(self, value: Attributes) -> bool:
        """Tell whether the expression is true."""
        seen = value.seen(self._reads)
        if seen is None:
            return self.outcome(value) is HOLDS
        known = self._known.get(seen)
        if known is None:
            known = self.outcome(value) is HOLDS
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[seen] = known
        return known

    def outcome(self, value: Attributes) -> Outcome:
        """Tell what the expression says, also why it says nothing."""
        names = self._headers
        return evaluate(self.program, lambda name: value.headers(names) if name == HEADERS else value.fact(name))


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The text that an expression gives, or the default if it gives none."""

    program: Program
    default: str | None = None
    """None means that there is no value then."""

    def read(self, value: Attributes) -> str | None:
        """Return the text."""
        names = _headers_read(self.program)
        found = evaluate_text(self.program, lambda name: value.headers(names) if name == HEADERS else value.fact(name))
        return found if isinstance(found, str) else self.default


def _headers_read(program: Program) -> tuple[str, ...] | None:
    return next((step.keys for step in program.steps if step.variable == HEADERS), ())
