"""Remembers results of expressions: the same values give the same result.

A server sees the same few tools and claims again and again. Comparing what an expression reads is several times as
fast as evaluating it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Failed, Outcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.facts import ABSENT, Absent, Lookup

Evaluate: TypeAlias = Callable[[Program, Lookup], Outcome]

_MOST_PROGRAMS: Final = 4096
_MOST_OUTCOMES: Final = 256
"""Of one program: clients choose the values, so there can be many."""
_LONGEST: Final = 256
"""A longer text is not worth keeping."""

_Value: TypeAlias = str | bool | Absent | None
_Values: TypeAlias = tuple[_Value, ...]
_NO_MEMBER: Final = None
"""Stands for a member that a map does not have; null, which it may have, is never among the values. A map that is not
there at all is `ABSENT`: to ask whether it has a member is an error then."""


class RememberedExpressions:
    """Evaluates with another one what it does not know yet.

    Only true and false are remembered, and only where a program reads nothing but texts and truth values: then both are
    all that the outcome depends on.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._known: dict[int, tuple[Program, dict[_Values, Outcome]]] = {}

    def __call__(self, program: Program, lookup: Lookup) -> Outcome:
        """Evaluate a program with the known data."""
        values = _values(program, lookup)
        if values is None:
            return self._evaluate(program, lookup)
        known = self._known.get(id(program))
        if known is None:
            if len(self._known) >= _MOST_PROGRAMS:
                self._known.clear()
            # The program is kept, so that no other one can have its number.
            known = self._known[id(program)] = (program, {})
        outcomes = known[1]
        outcome = outcomes.get(values)
        if outcome is None:
            outcome = self._evaluate(program, lookup)
            if outcome is HOLDS or outcome is HOLDS_NOT:
                if len(outcomes) >= _MOST_OUTCOMES:
                    outcomes.clear()
                outcomes[values] = outcome
        return outcome


def _values(program: Program, lookup: Lookup) -> _Values | None:
    """Return all that a program reads; None if that is more than a few short texts and truth values."""
    values: list[_Value] = []
    for step in program.steps:
        found = lookup(step.variable)
        if found is None:
            values.append(ABSENT)
        elif isinstance(found, Failed):
            return None
        elif step.keys is None:
            if not _fits(found.value):
                return None
            values.append(found.value)
        elif not _add_members(found.value, step.keys, values):
            return None
    return tuple(values)


def _add_members(members: object, keys: tuple[str, ...], values: list[_Value]) -> bool:
    if type(members) is not dict:
        return False
    for key in keys:
        member = members.get(key, _NO_MEMBER)
        if not _fits(member) and (member is not _NO_MEMBER or key in members):
            return False
        values.append(member)
    return True


def _fits(value: object) -> bool:
    return len(value) <= _LONGEST if type(value) is str else type(value) is bool
