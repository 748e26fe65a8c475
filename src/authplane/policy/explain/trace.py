"""The trace of a decision, for people."""

from authplane.cel.explain.explain_expression import Explanation
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTrace:
    """One entry of a rule."""

    entry: str
    granted: bool
    reason: str = ""
    hint: str = ""
    """What to change so that it grants."""
    explanation: Explanation | None = None
    """The value of every part of an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrace:
    """One rule: whether its source matches, and its entries."""

    rule: str
    source: str
    matched: bool
    identity: str = ""
    reason: str = ""
    hint: str = ""
    entries: tuple[EntryTrace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTrace:
    """One policy, and whether it grants the request."""

    policy: str
    target: str
    passed: bool
    reason: str
    rules: tuple[RuleTrace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The evaluated policies, in order; policies after one that denies are not evaluated."""

    policies: tuple[PolicyTrace, ...] = ()
