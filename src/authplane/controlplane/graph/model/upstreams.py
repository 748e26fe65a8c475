"""The destinations of requests and checks: the values of the graph that become clusters.

Every value here is valid: invalid parts have been left out and reported.
"""

from enum import StrEnum
from typing import Final, TypeAlias

from authplane.core.names import ObjectName
from authplane.core.timeouts import Timeout, UseDefault
from authplane.core.values import dataclass
from authplane.resources.service_endpoints import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointGroup:
    """The ready endpoints of one Service, which share a weight. Weight 0 gets no load."""

    service: ObjectName
    weight: int
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalName:
    """An external name, which the proxy resolves: the target of an ExternalName Service."""

    service: ObjectName
    weight: int
    host: str
    port: int
    ipv4_first: bool = False
    """Whether IPv6 addresses are used only if there are no others; otherwise they come first."""
    searched: bool = False
    """Whether the search domains of the proxy's machine complete the name; in a cluster those are the cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFile:
    """A socket in the file system of the proxy's machine."""

    service: ObjectName
    weight: int
    path: str


Destinations: TypeAlias = tuple[EndpointGroup, ...] | tuple[ExternalName, ...] | tuple[SocketFile, ...]
"""Never a mix: a proxy either gets endpoints over xDS, or resolves names, or connects to a socket file."""


# --- TLS


@dataclass(frozen=True, slots=True)
class Plaintext:
    """No TLS to the upstream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """What TLS may negotiate; empty fields leave it to the proxy. The minimum is not above the maximum."""

    minimum: str = "1.2"
    maximum: str = "1.3"
    ciphers: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()


NO_LIMITS: Final = TlsLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnverifiedTls:
    """TLS to the upstream without verifying its certificate."""

    server_name: str = ""
    client_certificate: ObjectName | None = None
    limits: TlsLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class CaFile:
    """A PEM file on the proxy's machine: what that machine trusts."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A certificate chain and its key in PEM files on the proxy's machine, which reads them anew when they change."""

    name: ObjectName
    """The name by which the proxy requests them; no object has it."""
    chain: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTls:
    """TLS to an upstream whose certificate the CA signed for one of the names."""

    ca: bytes | CaFile
    subject_names: tuple[str, ...]
    server_name: str
    client_certificate: ObjectName | None = None
    limits: TlsLimits = NO_LIMITS


UpstreamTls: TypeAlias = Plaintext | UnverifiedTls | VerifiedTls


class HttpVersion(StrEnum):
    """The protocol of an upstream."""

    HTTP1 = "http/1.1"
    HTTP2 = "h2"


class Balancing(StrEnum):
    """How requests are spread over endpoints."""

    ROUND_ROBIN = "RoundRobin"
    RANDOM = "Random"
    LEAST_REQUEST = "WeightedLeastRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakers:
    """Limits of concurrent use of an upstream; zero leaves them to the proxy."""

    connections: int = 0
    pending_requests: int = 0
    requests: int = 0
    retries: int = 0
    connections_per_host: int = 0


NO_BREAKERS: Final = Breakers()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCluster:
    """One port of one Service, as routes use it. Equal settings share a cluster."""

    name: str
    version: HttpVersion
    tls: UpstreamTls
    destinations: Destinations
    balancing: Balancing = Balancing.ROUND_ROBIN
    breakers: Breakers = NO_BREAKERS
    connect_timeout: Timeout = UseDefault()
    idle_connection_timeout: Timeout = UseDefault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A cluster that gets copies of a route's requests; its answers are dropped."""

    cluster: str
    percent: int
    """The share of requests that are copied, 1 to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension service as virtual hosts see it: its endpoints come and go without a change for them."""

    object_name: ObjectName
    cluster: str
    version: HttpVersion
    authority: str
    response_timeout: Timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionCluster:
    """An extension service."""

    name: str
    object_name: ObjectName
    version: HttpVersion
    tls: UpstreamTls
    destinations: Destinations
    authority: str
    """The host (authority) of the check call."""
    balancing: Balancing = Balancing.ROUND_ROBIN
    breakers: Breakers = NO_BREAKERS
    connect_timeout: Timeout = UseDefault()
    response_timeout: Timeout = UseDefault()
    """Maximum time of a check, unless the virtual host sets another."""
    idle_connection_timeout: Timeout = UseDefault()
    keepalive: bool = False
    """Whether the proxy pings over its connections, and closes those without an answer.

    Not for third-party servers: gRPC servers disconnect a client that pings more often than every five minutes.
    """
    health_checks: bool = False
    """Whether the proxy sends health checks to each destination, and excludes those that do not answer."""

    @property
    def extension(self) -> Extension:
        """What routes need to call the service."""
        return Extension(
            object_name=self.object_name,
            cluster=self.name,
            version=self.version,
            authority=self.authority,
            response_timeout=self.response_timeout,
        )

    @property
    def ready_endpoints(self) -> int:
        """Number of endpoints that can answer; an external name or a socket counts as one."""
        found: set[object] = set()
        for each in self.destinations:
            if each.weight:
                found |= set(each.endpoints) if isinstance(each, EndpointGroup) else {each}
        return len(found)


Cluster: TypeAlias = ServiceCluster | ExtensionCluster
