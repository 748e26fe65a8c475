"""The authorization of requests: the values of the graph that become ext_authz configuration.

A route is `Unprotected`, `Disabled` or `Enforced`: there is no value that a forgotten case could leave open.
"""

from enum import StrEnum
from typing import TypeAlias

from authplane.controlplane.graph.model.target_placements import Placing
from authplane.core.timeouts import Timeout
from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import AuthPolicy


class NameTest(StrEnum):
    """How the name of a header is compared."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderNames:
    """Selects headers by name."""

    test: NameTest
    text: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OverGrpc:
    """Asked with Envoy's gRPC protocol; ``authority`` is the host that the call names."""

    authority: str
    retried: bool = False
    """Whether a check is made again whose connection ends before its answer; a check changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverHttp:
    """Asked with a request like the client's, under ``path_prefix``."""

    path_prefix: str = ""
    request_headers: tuple[HeaderNames, ...] = ()
    """The client's headers that a check contains; empty is what Envoy always sends."""
    upstream_headers: tuple[HeaderNames, ...] = ()
    """The headers of the answer that reach the origin."""


Protocol: TypeAlias = OverGrpc | OverHttp


@dataclass(frozen=True, slots=True)
class FailClosed:
    """Without an answer from the authorization service the request is refused."""

    status: int = 403


@dataclass(frozen=True, slots=True)
class FailOpen:
    """Without an answer from the authorization service the request is allowed, as the author configured."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """Envoy sends checks, counts the decisions and allows every request: for trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBody:
    """How much of the request's body goes with the check; a longer one is answered 413 unless ``partial``."""

    most_bytes: int
    partial: bool = False
    as_bytes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationService:
    """The service, its timeout, and what Envoy does without an answer."""

    cluster: str
    protocol: Protocol
    timeout: Timeout
    on_failure: FailClosed | FailOpen | Shadow
    body: CheckedBody | None = None
    by_policies: bool = False
    """Whether it is the policy server: it decides for the backend of the route, and chooses no other."""


# --- Authorization of a route


@dataclass(frozen=True, slots=True)
class Unprotected:
    """No authorization is configured here."""


@dataclass(frozen=True, slots=True)
class Disabled:
    """The virtual host is authorized; the author switched it off for this route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """Every request is checked; ``context`` goes with the check."""

    service: AuthorizationService
    context: tuple[tuple[str, str], ...]
    """Sorted by key."""
    placing: Placing | None = None
    """The policies that the proxy may decide natively; None sends a check for every request."""


RouteAuthorization: TypeAlias = Unprotected | Disabled | Enforced


@dataclass(frozen=True, slots=True)
class ByTarget:
    """Each target of a route has its own authorization: the backend decides it, not the route."""

    each: tuple[RouteAuthorization, ...]
    """In the order of the targets."""


# --- Authorization of a virtual host


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The virtual host has an authorization service; ``policy`` applies to routes without their own."""

    service: AuthorizationService
    policy: AuthPolicy
    anywhere: bool
    """Whether it is also called on connections without TLS, and on those with the fallback certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Global authorization applies and cannot be enforced: a route that needs it withdraws its virtual host."""

    policy: AuthPolicy


@dataclass(frozen=True, slots=True)
class Unenforceable:
    """The virtual host requires authorization that cannot be applied: an error has withdrawn it."""


HostAuthorization: TypeAlias = Unprotected | Guarded | Unavailable | Unenforceable
