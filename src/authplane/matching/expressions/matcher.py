"""Matchers that ask an expression."""

from dataclasses import dataclass, field
from typing import Protocol

from authplane.cel.calls import HEADERS
from authplane.cel.evaluate import evaluate, evaluate_text
from authplane.cel.facts import Fact
from authplane.cel.outcome import HOLDS, Outcome
from authplane.cel.program import Program


class Attributes(Protocol):
    """What expressions read of a call; each is made when an expression that reads it is evaluated."""

    def headers(self, names: tuple[str, ...] | None) -> Fact:
        """Return the values of these headers by the names as given; None means all of them."""

    def fact(self, name: str) -> Fact:
        """Return any other attribute by its dotted name."""


@dataclass(frozen=True, slots=True)
class ExpressionMatcher:
    """Matches if the expression is true; an error, or a result that is no bool, is no match."""

    program: Program
    _headers: tuple[str, ...] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_headers", _headers_read(self.program))

    def matches(self, value: Attributes) -> bool:
        """Tell whether the expression is true."""
        return self.outcome(value) is HOLDS

    def outcome(self, value: Attributes) -> Outcome:
        """Tell what the expression says, also why it says nothing."""
        names = self._headers
        return evaluate(self.program, lambda name: value.headers(names) if name == HEADERS else value.fact(name))

    def __str__(self) -> str:
        return f"satisfies {self.program.text}"


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
