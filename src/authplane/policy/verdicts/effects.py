"""Effects: what a decision needs from the outside, such as an answer of an external service.

A backend that needs I/O decides in a generator: it yields an effect, receives the outcome, and returns the decision.
A backend that needs none returns the decision.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.values import dataclass
from authplane.policy.check.decision import Decision
from authplane.policy.check.request import Request
from authplane.policy.identity.workload_identity.reviewing import ReviewOutcome, ReviewToken

if TYPE_CHECKING:
    # Only for type checking: it imports the code for certificates, and most servers call no external service.
    from authplane.policy.rules.external_service import ExternalService


@dataclass(frozen=True, slots=True)
class Work:
    """Effect: a pure computation that takes so long that it must not delay other checks."""

    run: Callable[[], bool]
    key: bytes = b""
    """The key under which the outcome may be kept for later checks; empty if it must not be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Effect: call an external service, which grants or denies a request."""

    service: "ExternalService"
    request: Request
    deadline: float
    """In seconds since 1970; shared by all calls for one request."""
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """Metadata of the request, by the names of the Envoy filters that would set it."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Outcome: there was no capacity for the work, so there is no decision."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Outcome: the service grants the request, with these edits."""

    edits: HeaderEdits = NO_EDITS
    response_headers: tuple[tuple[str, str], ...] = ()
    """Added to the response to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Outcome: the service denies the request."""

    http_status: int = 403
    headers: tuple[tuple[str, str], ...] = ()
    """For the client; a name may be repeated."""
    body: str = ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Outcome: the service did not answer in time, or its answer is not valid."""

    why: str


Effect: TypeAlias = Work | Ask | ReviewToken
Outcome: TypeAlias = bool | Busy | Granted | Declined | NoAnswer | ReviewOutcome
Flow: TypeAlias = Generator[Effect, Outcome, Decision]
