"""The decision of an authorization service about a call."""

from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Code, Metadata, Mutation, Stop
from authplane.dataplane.filters.headers import NO_EDITS, Edits


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call goes on; all edits are well-formed and allowed, so that to make them cannot fail."""

    edits: Edits = NO_EDITS
    response_metadata: Metadata = ()
    response_mutations: tuple[Mutation, ...] = ()
    max_age: float | None = None
    """For how many seconds the service lets this be remembered; None if it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call ends."""

    code: Code
    message: str
    trailers: Metadata = ()
    max_age: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no decision."""

    why: str
    """For a log, not for the client."""
    stop: Stop | None = None
    """How the call ends even where calls pass without a decision: the client itself brought this about."""


Decision: TypeAlias = Allow | Deny
Outcome: TypeAlias = Decision | Failed
