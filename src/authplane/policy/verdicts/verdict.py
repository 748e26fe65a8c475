"""Verdicts: decisions with their grounds."""

from collections.abc import Generator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.values import dataclass
from authplane.policy.check.decision import Decision
from authplane.policy.verdicts.effects import Declined, Effect, Outcome

if TYPE_CHECKING:
    # Only for type checking: it imports CEL, and every authorization service imports verdicts.
    from authplane.policy.explain.trace import RuleTrace, Trace


class Grounds(NamedTuple):
    """What the decision log says about a decision besides the request. It contains no token.

    A tuple and not a dataclass: every check makes one, and a tuple is faster.
    """

    policy: str = ""
    """The policy that denied; or the last one that granted, which is the backend's if it has any."""
    rule: str = ""
    entry: str = ""
    identity: str = ""
    mcp_method: str = ""
    tool: str = ""
    reason: str = ""
    failures: tuple[str, ...] = ()
    """Expressions that failed, as ``policy rule entry code``; metrics count them."""


class Would(StrEnum):
    """What a policy in shadow mode would do if it were enforced alone."""

    ALLOW = "allow"
    DENY = "deny"
    UNKNOWN = "unknown"
    """A service would have to be called, or has not answered yet; shadow mode calls no service."""


class Shadowed(NamedTuple):
    """What a policy in shadow mode would do. Neither the client nor the origin learns of it."""

    policy: str
    target: str
    would: Would
    rule: str = ""
    entry: str = ""
    identity: str = ""
    reason: str = ""
    rules: "tuple[RuleTrace, ...]" = ()
    """The rules that were evaluated, if a trace was requested."""


class Verdict(NamedTuple):
    """A decision and its grounds."""

    decision: Decision
    grounds: Grounds
    trace: "Trace | None" = None
    shadows: tuple[Shadowed, ...] = ()
    """What policies in shadow mode would do, by target and age."""


VerdictFlow: TypeAlias = Generator[Effect, Outcome, Verdict]


class Passed(NamedTuple):
    """A policy grants the request."""

    policy: str = ""
    rule: str = ""
    entry: str = ""
    identity: str = ""
    reason: str = "granted"
    edits: HeaderEdits = NO_EDITS
    response_headers: tuple[tuple[str, str], ...] = ()
    """Added to the response to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPassed:
    """A policy denies the request, or cannot decide it, with everything that an answer to the client may need."""

    policy: str
    rule: str = ""
    entry: str = ""
    identity: str = ""
    """The sender's identity for the log; empty if the sender proves none that a rule could accept."""
    recognised: bool = False
    """Some rule is about this sender."""
    reason: str
    unavailable: str = ""
    """Why there is no decision; empty if there is one."""
    retry_after: int = 0
    """In how many seconds the client may retry, if it must slow down."""
    wants_token: bool = False
    """A token could help, and the request has none that a rule accepts."""
    bad_token: bool = False
    token_fault: str = ""
    """What the client hears about the token that no rule accepts."""
    scopes: tuple[str, ...] = ()
    """The missing scopes, if nothing else is missing."""
    message: str = ""
    """The message of the policy's author."""
    declined: Declined | None = None
    """The answer of the external service that denied the request."""
    too_large: bool = False
    """The body is larger than the external service accepts."""


Result: TypeAlias = Passed | NotPassed
