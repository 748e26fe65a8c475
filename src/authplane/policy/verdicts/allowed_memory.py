"""Remembers what was allowed: the same workload, or the same token, calls the same tools again and again.

Only where an allowance depends on nothing but who asks and which tool or method is called. Who asks is proved anew each
time; and what is remembered belongs to one generation of the policies, and ends with it.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from authplane.policy.check.decision import Allow
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.rules.rule_model import (
    AllTools,
    AnyPolicy,
    AnySource,
    Entry,
    Everything,
    Expression,
    Oidc,
    Policy,
    Source,
    Spiffe,
    Tools,
)
from authplane.policy.verdicts.verdict import Verdict

_MOST: Final = 1024
"""Clients choose the names of tools, so there can be many."""
_READS: Final = frozenset({"identity", "request.mcp.method", "request.mcp.tool_name"})


class Proof(Enum):
    """What of its sender a request is judged by."""

    NOTHING = auto()
    CERTIFICATE = auto()
    TOKEN = auto()


class Question(NamedTuple):
    """Who asks for what, as far as a decision depends on it."""

    key: tuple[tuple[str, ...], int, str, str]
    """The ids that were proved; the number of the object that says what the token proves; the protocol's version if a
    method is named, and nothing if it is a tool; the name of either."""
    verified: Verified | None


def proof_of(policies: Iterable[AnyPolicy]) -> Proof | None:
    """Return what alone of the sender decides; None if there is more to it, or if more than the tool or method counts.

    A rule for workloads may come before one for tokens, which then nobody looks at: so both together are more to it.
    """
    found: set[Proof] = set()
    for policy in policies:
        if not isinstance(policy, Policy):
            return None
        for rule in policy.rules:
            proof = _proof(rule.source)
            if proof is None or not all(_is_narrow(entry) for entry in rule.entries):
                return None
            found.add(proof)
    found.discard(Proof.NOTHING)
    return None if len(found) > 1 else next(iter(found), Proof.NOTHING)


def _proof(source: Source) -> Proof | None:
    match source:
        case AnySource():
            return Proof.NOTHING
        case Spiffe():
            return Proof.CERTIFICATE
        case Oidc():
            return Proof.TOKEN
        case _:
            return None


def _is_narrow(entry: Entry) -> bool:
    match entry:
        case Tools() | AllTools() | Everything():
            return True
        case Expression(program=program):
            return _READS.issuperset(program.variables)
        case _:
            return False


class Memory:
    """What was allowed on one way."""

    __slots__ = ("_allowed",)

    def __init__(self) -> None:
        self._allowed: dict[tuple[tuple[str, ...], int, str, str], tuple[Verified | None, Verdict]] = {}

    def recall(self, question: Question) -> Verdict | None:
        """Return the allowance of the same question; None if it was never asked, or not allowed."""
        known = self._allowed.get(question.key)
        # Another object may have got the number of one that is gone; but those that are kept here are not gone.
        return known[1] if known is not None and known[0] is question.verified else None

    def keep(self, question: Question, verdict: Verdict) -> None:
        """Remember an allowance; denials say something to each client, and are not kept."""
        if isinstance(verdict.decision, Allow):
            if len(self._allowed) >= _MOST:
                self._allowed.clear()
            self._allowed[question.key] = (question.verified, verdict)
