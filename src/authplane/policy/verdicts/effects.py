"""How a decision asks for what it cannot do by itself.

A backend that needs something on the way decides in a generator: it yields an effect, is sent the outcome, and returns
the decision. One that needs nothing just returns the decision.
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
    # Only named here: it brings all that reads certificates, and most servers ask nobody.
    from authplane.policy.rules.external_service import ExternalService


@dataclass(frozen=True, slots=True)
class Work:
    """Effect: a pure computation that takes so long that it must not hold up other checks."""

    run: Callable[[], bool]
    key: bytes = b""
    """Names the outcome, which may be kept by it for those who come after everybody has left; empty if it may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Effect: an external service is asked whether a request may go on."""

    service: "ExternalService"
    request: Request
    deadline: float
    """In seconds since 1970; shared by all that is asked about one request."""
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """What is known of the request, by the names of the filters that would say so."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Outcome: there was no room for the work, so nothing is known."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Outcome: the service lets the request go on, with these edits."""

    edits: HeaderEdits = NO_EDITS
    response_headers: tuple[tuple[str, str], ...] = ()
    """Added to the response to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Outcome: the service does not let the request go on."""

    http_status: int = 403
    headers: tuple[tuple[str, str], ...] = ()
    """For the client; a name may stand there twice."""
    body: str = ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Outcome: the service did not say anything that can be understood, or not in time."""

    why: str


Effect: TypeAlias = Work | Ask | ReviewToken
Outcome: TypeAlias = bool | Busy | Granted | Declined | NoAnswer | ReviewOutcome
Flow: TypeAlias = Generator[Effect, Outcome, Decision]
