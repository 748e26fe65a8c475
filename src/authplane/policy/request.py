"""The request that an authorization check is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One end of the connection the request came over."""

    principal: str = ""
    """The identity its certificate proved; empty without mutual TLS."""
    address: str = ""
    """An IP address or the path of a unix socket."""
    port: int = 0
    certificate: str = ""
    """The certificate it showed, PEM and percent-encoded as Envoy sends it; empty without mutual TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request as the proxy saw it. Nothing in it is trusted but the peers and the context."""

    method: str
    scheme: str = ""
    host: str = ""
    """Empty when a gRPC service asks, which names none: a rule about hosts must not hold then."""
    path: str
    """Without the query."""
    query: str = ""
    """Without the question mark."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case; every value of a name, in the order they came. Bytes that are not UTF-8 are kept as
    surrogate escapes, so that no two different values become equal."""
    context: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the route's configuration says about the request."""
    id: str = ""
    source: Peer = Peer()
    destination: Peer = Peer()
    body: bytes = b""
    """As much of the request's body as the proxy sends; usually none."""
    time: datetime | None = None
    """When the proxy received the request, if it says so."""

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value of a header; ``name`` is in lower case."""
        return tuple(value for each, value in self.headers if each == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """The message does not describe a request that could be judged."""

    reason: str
