"""What a decision rests on."""

from collections.abc import Generator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.values import dataclass
from authplane.policy.check.decision import Decision
from authplane.policy.verdicts.effects import Declined, Effect, Outcome

if TYPE_CHECKING:
    # Only named here: it brings CEL, and every authorization service knows verdicts.
    from authplane.policy.explain.trace import RuleTrace, Trace


class Grounds(NamedTuple):
    """What the decision log says of a decision besides the request. No token is in it.

    A tuple and no dataclass: every check makes one, and this is made faster.
    """

    policy: str = ""
    """The policy that denied; or of those that granted the last, which is the backend's if it has any."""
    rule: str = ""
    entry: str = ""
    identity: str = ""
    mcp_method: str = ""
    tool: str = ""
    reason: str = ""
    failures: tuple[str, ...] = ()
    """Expressions that failed on the way, as ``policy rule entry code``; they are counted."""


class Would(StrEnum):
    """What a policy in shadow would do if it stood alone before its target, and were enforced."""

    ALLOW = "allow"
    DENY = "deny"
    UNKNOWN = "unknown"
    """Somebody else would have to be asked, or has not answered yet; nobody is asked for a shadow."""


class Shadowed(NamedTuple):
    """What a policy in shadow says of a request. Nothing of it reaches the client, or the server behind."""

    policy: str
    target: str
    would: Would
    rule: str = ""
    entry: str = ""
    identity: str = ""
    reason: str = ""
    rules: "tuple[RuleTrace, ...]" = ()
    """What was tried, if somebody wants to know."""


class Verdict(NamedTuple):
    """A decision and what it rests on."""

    decision: Decision
    grounds: Grounds
    trace: "Trace | None" = None
    shadows: tuple[Shadowed, ...] = ()
    """What policies in shadow say, by target and age."""


VerdictFlow: TypeAlias = Generator[Effect, Outcome, Verdict]


class Passed(NamedTuple):
    """A policy lets the request go on."""

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
    """A policy does not let the request go on, with all that an answer to the client may need."""

    policy: str
    rule: str = ""
    entry: str = ""
    identity: str = ""
    """Who was recognised; empty if no rule is for the sender."""
    reason: str
    unavailable: str = ""
    """Why it is not known whether the request would be granted; empty if it is known."""
    retry_after: int = 0
    """In how many seconds it may be known, if the client has to slow down."""
    wants_token: bool = False
    """A token of some issuer could help, and there is none that any rule is for."""
    bad_token: bool = False
    token_fault: str = ""
    """What the client hears about the token that no rule accepts."""
    scopes: tuple[str, ...] = ()
    """The scopes that alone are missing."""
    message: str = ""
    """What the policy's author has to say."""
    declined: Declined | None = None
    """The answer of the external service that did not let it go on."""
    too_large: bool = False
    """The body is larger than what an external service may be sent."""


Result: TypeAlias = Passed | NotPassed
