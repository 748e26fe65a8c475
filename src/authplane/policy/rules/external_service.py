"""External authorization services, as the Gateway API's HTTPExternalAuthFilter describes them."""

from typing import TypeAlias

from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.policy.rules.backend_tls import BackendTls


@dataclass(frozen=True, slots=True, kw_only=True)
class OverGrpc:
    """Asked by Envoy's ext_authz v3 protocol."""

    request_headers: frozenset[str] = frozenset()
    """The headers that are sent, in lower case; empty sends all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverHttp:
    """Asked by an HTTP request; 200 allows, and every other status denies."""

    path: str = ""
    """Put before the request's own path; begins with a slash and does not end with one, or is empty."""
    request_headers: frozenset[str] = frozenset()
    """Sent besides Host, Method, Path, Content-Length and Authorization; in lower case."""
    response_headers: frozenset[str] = frozenset()
    """Copied from the answer into the request; in lower case. Empty copies all but Host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalService:
    """An external service, and how to call it."""

    service: ObjectName
    port: int
    protocol: OverGrpc | OverHttp
    most_body: int = 0
    """How many bytes of the body are sent; 0 sends none, and a request with a larger one is refused."""
    tls: BackendTls | None = None
    """None is without TLS."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A service that cannot be called, and why: it does not exist, or the reference is not permitted."""

    reason: str
    message: str


Destination: TypeAlias = ExternalService | Missing
