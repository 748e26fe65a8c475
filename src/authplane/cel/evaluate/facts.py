"""The facts of one request: each variable is computed once, when a program first reads it."""

from collections.abc import Callable
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


def build_fact(value: object) -> Fact:
    """Turn a value, an `Admitted` one, why there is none, or `ABSENT` into a fact."""
    if value is ABSENT:
        return None
    return value if isinstance(value, (Admitted, Failed)) else admit(value)
