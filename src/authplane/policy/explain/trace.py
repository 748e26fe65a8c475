"""What was tried on the way to a decision, for people."""

from authplane.cel.explain.explain_expression import Explanation
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTrace:
    """One thing that a rule could have granted."""

    entry: str
    granted: bool
    reason: str = ""
    hint: str = ""
    """What would have to change."""
    explanation: Explanation | None = None
    """Of an expression: the value of every part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrace:
    """One rule: whether its source matches, and what it was asked for."""

    rule: str
    source: str
    matched: bool
    identity: str = ""
    reason: str = ""
    hint: str = ""
    entries: tuple[EntryTrace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTrace:
    """One policy, and what it says."""

    policy: str
    target: str
    passed: bool
    reason: str
    rules: tuple[RuleTrace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Every policy that was asked, in order; those after one that denies were not."""

    policies: tuple[PolicyTrace, ...] = ()
