"""Remembers grants: the same workload, or the same token, calls the same tools again and again.

Only where a grant depends on nothing but the sender and the tool or method. The sender's identity is verified each
time. The memory belongs to one generation of the policies, and ends with it.
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
"""Clients choose the names of tools, so there can be many different ones."""
_READS: Final = frozenset({"identity", "request.mcp.method", "request.mcp.tool_name"})


class Proof(Enum):
    """What proves the sender's identity."""

    NOTHING = auto()
    CERTIFICATE = auto()
    TOKEN = auto()


class Question(NamedTuple):
    """Sender and call, as far as a decision depends on them."""

    key: tuple[tuple[str, ...], int, str, str]
    """The proved SPIFFE ids; the identity of the `Verified` object; the protocol version for a method, empty for a
    tool; the name of the method or tool."""
    verified: Verified | None


def proof_of(policies: Iterable[AnyPolicy]) -> Proof | None:
    """Return the only proof that decides; None if there are several, or if more than the tool or method matters.

    With rules for workloads and rules for tokens, the first that grants decides which proof matters: that is several.
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
    """The grants before one target."""

    __slots__ = ("_allowed",)

    def __init__(self) -> None:
        self._allowed: dict[tuple[tuple[str, ...], int, str, str], tuple[Verified | None, Verdict]] = {}

    def recall(self, question: Question) -> Verdict | None:
        """Return the grant for the same key; None if there is none."""
        known = self._allowed.get(question.key)
        # Python may reuse the id of an object that was freed; the objects in here are alive.
        return known[1] if known is not None and known[0] is question.verified else None

    def keep(self, question: Question, verdict: Verdict) -> None:
        """Remember a grant. Denials are not kept: each has a message for its client."""
        if isinstance(verdict.decision, Allow):
            if len(self._allowed) >= _MOST:
                self._allowed.clear()
            self._allowed[question.key] = (question.verified, verdict)
