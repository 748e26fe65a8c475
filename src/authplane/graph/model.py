"""The routing graph: what the gateway does, in no proxy's vocabulary.

Every value here is valid: what is not has been left out and reported.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from authplane.base.names import ObjectName
from authplane.base.secret import Secret
from authplane.base.timeouts import Timeout

# --- Upstreams


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """An IP address and a port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointGroup:
    """The ready endpoints of one Service, which share a weight. Weight 0 gets no load."""

    service: ObjectName
    weight: int
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Plaintext:
    """No TLS to the upstream."""


@dataclass(frozen=True, slots=True)
class UnverifiedTls:
    """TLS to the upstream, whoever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTls:
    """TLS to an upstream whose certificate the CA signed for one of the names; the first is the SNI."""

    ca: bytes
    subject_names: tuple[str, ...]


UpstreamTls: TypeAlias = Plaintext | UnverifiedTls | VerifiedTls


class Balancing(StrEnum):
    """How calls are spread over the endpoints of an extension service."""

    ROUND_ROBIN = "RoundRobin"
    RANDOM = "Random"
    LEAST_REQUEST = "WeightedLeastRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCluster:
    """The endpoints of one port of one Service, as routes use them."""

    name: str
    http2: bool
    group: EndpointGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionCluster:
    """An extension service that Envoy asks over HTTP/2."""

    name: str
    object_name: ObjectName
    tls: UpstreamTls
    groups: tuple[EndpointGroup, ...]
    balancing: Balancing
    response_timeout: Timeout
    idle_connection_timeout: Timeout

    @property
    def authority(self) -> str:
        """What the check call names as its host; a slash is not allowed there."""
        return self.tls.subject_names[0] if isinstance(self.tls, VerifiedTls) else self.name.replace("/", ".")

    @property
    def ready_endpoints(self) -> int:
        """How many endpoints can answer."""
        return len({endpoint for group in self.groups if group.weight for endpoint in group.endpoints})


Cluster: TypeAlias = ServiceCluster | ExtensionCluster

# --- Authorization


@dataclass(frozen=True, slots=True)
class FailClosed:
    """Without an answer from the authorization service the request is refused."""


@dataclass(frozen=True, slots=True)
class FailOpen:
    """Without an answer from the authorization service the request goes through: the author asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationService:
    """Who is asked, how long to wait, and what no answer means."""

    cluster: str
    authority: str
    timeout: Timeout
    on_failure: FailClosed | FailOpen


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Nobody asked for authorization here."""


@dataclass(frozen=True, slots=True)
class Disabled:
    """The virtual host is authorized; the author switched it off for this route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """Every request is checked; ``context`` goes with the check."""

    service: AuthorizationService
    context: tuple[tuple[str, str], ...]
    """Sorted by key."""


RouteAuthorization: TypeAlias = Unprotected | Disabled | Enforced

# --- Routes and hosts


@dataclass(frozen=True, slots=True, order=True)
class Exact:
    """Matches this path only."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Prefix:
    """Matches every path that starts with this text."""

    path: str


PathMatch: TypeAlias = Exact | Prefix


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A cluster's share of a route's requests."""

    cluster: str
    weight: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Sends the request on; there is at least one target with a weight above zero."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class RedirectToHttps:
    """Answers 301 to the same path on HTTPS."""

    port: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answers by itself."""

    status: int


Action: TypeAlias = Forward | RedirectToHttps | Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What happens to the requests that match."""

    match: PathMatch
    action: Action
    authorization: RouteAuthorization


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual host as one listener serves it; routes are in the order of precedence."""

    fqdn: str
    proxy: ObjectName
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureHost:
    """A virtual host behind TLS."""

    host: Host
    certificate: ObjectName
    minimum_tls: str
    elsewhere: tuple[str, ...]
    """Names that this host's wildcard covers and that others claim: they are misdirected here."""

    @property
    def authorization(self) -> AuthorizationService | None:
        """The service that some route is checked by: there is one for a virtual host, or none."""
        services = {
            route.authorization.service for route in self.host.routes if isinstance(route.authorization, Enforced)
        }
        if len(services) > 1:
            raise ValueError(f"{self.host.fqdn} has {len(services)} authorization services")
        return services.pop() if services else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate chain and its key, PEM; they belong together."""

    name: ObjectName
    chain: bytes
    key: Secret[bytes]


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a listener listens."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything the gateway does. Each tuple is sorted by name."""

    http: Address
    https: Address
    plain_hosts: tuple[Host, ...] = ()
    secure_hosts: tuple[SecureHost, ...] = ()
    refused: tuple[str, ...] = ()
    """Withdrawn names that a wildcard on the plain listener would answer for."""
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[Certificate, ...] = ()
