"""How often which rule decided what, whoever counted it."""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from authplane.core.values import dataclass


class By(StrEnum):
    """Who decided."""

    ENVOY = "Envoy"
    SERVER = "policy server"


class Effect(StrEnum):
    """What became of what a rule said."""

    DECIDED = "decided"
    ONE_OF_SEVERAL = "one of several"
    """Several policies stand before the target: what they say together decides."""
    SHADOW = "shadow"
    """Nothing: the policy is only tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one rule said, so far."""

    by: By
    policy: str = ""
    """``namespace/name``; empty if nobody knows which."""
    rule: str = ""
    entry: str = ""
    effect: Effect = Effect.DECIDED
    allowed: int = 0
    denied: int = 0
    undecided: int = 0
    """No decision was reached; in shadow, somebody else would have had to be asked."""


_Key: TypeAlias = tuple[str, str, str, str, str]


def add_up(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """Add what is counted in several places, and sort it; what is all zero is left out."""
    sums: dict[_Key, Tally] = {}
    for each in tallies:
        key = (each.policy, each.rule, each.entry, each.by.value, each.effect.value)
        known = sums.get(key)
        sums[key] = each if known is None else _sum(known, each)
    return tuple(each for _, each in sorted(sums.items()) if each.allowed or each.denied or each.undecided)


def _sum(one: Tally, other: Tally) -> Tally:
    return replace(
        one,
        allowed=one.allowed + other.allowed,
        denied=one.denied + other.denied,
        undecided=one.undecided + other.undecided,
    )
