"""How a decision asks for what it cannot do by itself.

A backend that needs something on the way decides in a generator: it yields an effect, is sent the outcome, and returns
the decision. One that needs nothing just returns the decision.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

from authplane.policy.decision import Decision


@dataclass(frozen=True, slots=True)
class Work:
    """Effect: a pure computation that takes so long that it must not hold up other checks."""

    run: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Busy:
    """Outcome: there was no room for the work, so nothing is known."""


Effect: TypeAlias = Work
Outcome: TypeAlias = bool | Busy
Flow: TypeAlias = Generator[Effect, Outcome, Decision]
