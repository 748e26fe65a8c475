"""Decisions of each rule, whichever program counted them."""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from authplane.core.values import dataclass


class By(StrEnum):
    """The program that decided."""

    ENVOY = "Envoy"
    SERVER = "policy server"


class Effect(StrEnum):
    """The effect of a rule's decision."""

    DECIDED = "decided"
    ONE_OF_SEVERAL = "one of several"
    """The target has several policies, which decide together."""
    SHADOW = "shadow"
    """None: the policy is in shadow mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The decisions of one rule so far."""

    by: By
    policy: str = ""
    """``namespace/name``; empty if it is not known."""
    rule: str = ""
    entry: str = ""
    effect: Effect = Effect.DECIDED
    allowed: int = 0
    denied: int = 0
    undecided: int = 0
    """Checks without a decision; in shadow mode, checks that would need a call-out."""


_Key: TypeAlias = tuple[str, str, str, str, str]


def add_up(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """Add up the counts of several programs and sort them; leave out rules without a decision."""
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
