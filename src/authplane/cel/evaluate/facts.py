"""What is known about one request: each variable is made when a program first reads it, and once."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_outcome import Failed

Fact: TypeAlias = Admitted | Failed | None
"""A value; why it may not be looked at; or None for a variable that this request does not have."""

Lookup: TypeAlias = Callable[[str], Fact]
"""Finds a variable by its dotted name."""


class Absent:
    """Says that a request does not have a variable; None is a value."""


ABSENT: Final = Absent()


class Facts:
    """Remembers what ``make`` says of each variable: a value, an `Admitted` one, or `ABSENT`."""

    __slots__ = ("_known", "_make")

    def __init__(self, make: Callable[[str], object]) -> None:
        self._make = make
        self._known: dict[str, Fact] = {}

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Facts":
        """Return facts that are known already, by dotted names."""
        return cls(lambda name: values.get(name, ABSENT))

    def __call__(self, name: str) -> Fact:
        """Return a variable."""
        try:
            return self._known[name]
        except KeyError:
            return self._learn(name)

    def _learn(self, name: str) -> Fact:
        fact = self._known[name] = build_fact(self._make(name))
        return fact


def build_fact(value: object) -> Fact:
    """Turn a value, an `Admitted` one, why there is none, or `ABSENT` into a fact."""
    if value is ABSENT:
        return None
    return value if isinstance(value, (Admitted, Failed)) else admit(value)
