"""The routing graph: what the gateway does, in no proxy's vocabulary.

Every value here is valid: what is not has been left out and reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.controlplane.graph.model.grpc_servers import GrpcServer
from authplane.controlplane.graph.model.route_authorization import HeaderNames, RouteAuthorization
from authplane.controlplane.graph.model.upstreams import NO_LIMITS, CertificateFiles, Cluster, Mirror, TlsLimits
from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.names import ObjectName
from authplane.core.secret import Secret
from authplane.core.timeouts import Timeout, UseDefault

# --- Matching


@dataclass(frozen=True, slots=True, order=True)
class Exact:
    """Matches this path only."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Prefix:
    """Matches every path that starts with this text."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Segments:
    """Matches this path and every path below it: ``/a`` takes ``/a/b`` and not ``/ab``. It has no slash at its end."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Regex:
    """Matches the paths that the pattern matches whole (RE2)."""

    path: str


PathMatch: TypeAlias = Exact | Prefix | Segments | Regex


class TextTest(StrEnum):
    """How a text is compared."""

    PRESENT = "present"
    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    CONTAINS = "contains"
    REGEX = "regex"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class HeaderMatch:
    """Holds for requests by one of their headers."""

    name: str
    test: TextTest
    text: str = ""
    inverted: bool = False
    ignore_case: bool = False
    missing_is_empty: bool = False


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class QueryMatch:
    """Holds for requests by a parameter of their query."""

    name: str
    test: TextTest
    text: str = ""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The requests that a route takes: all conditions hold. Headers and query are sorted."""

    path: PathMatch
    headers: tuple[HeaderMatch, ...] = ()
    query: tuple[QueryMatch, ...] = ()


# --- Actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster's share of a route's requests."""

    cluster: str
    weight: int
    host: str = ""
    """What the origin is told instead of what the route says; empty leaves it to the route."""
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Sends the request on; there is at least one target with a weight above zero."""

    targets: tuple[Target, ...]
    mirror: Mirror | None = None
    response_timeout: Timeout = UseDefault()
    idle_timeout: Timeout = UseDefault()
    replace_prefix: str | None = None
    """What takes the place of the matched prefix."""
    host: str = ""
    """What the origin sees as host; empty leaves the client's."""
    websockets: bool = False

    @property
    def clusters(self) -> tuple[str, ...]:
        """Every cluster that gets requests of the route, the mirror included."""
        mirrored = () if self.mirror is None else (self.mirror.cluster,)
        return (*(target.cluster for target in self.targets), *mirrored)


@dataclass(frozen=True, slots=True)
class RedirectToHttps:
    """Answers 301 to the same path on HTTPS."""

    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """Answers 301 or 302 to another address; what is not given stays as it was."""

    status: int
    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str | None = None
    prefix: str | None = None
    """What takes the place of the matched prefix; never with ``path``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """Answers by itself."""

    status: int
    body: str = ""


Action: TypeAlias = Forward | RedirectToHttps | Redirect | Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What happens to the requests that match."""

    proxy: ObjectName
    """The HTTPProxy that holds the route: the root, or one that it includes."""
    match: Match
    action: Action
    authorization: RouteAuthorization
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS


# --- Hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual host as one listener serves it; routes are in the order of precedence."""

    fqdn: str
    proxy: ObjectName
    """The root."""
    included: tuple[ObjectName, ...] = ()
    """The HTTPProxies that the root includes, at any depth, sorted."""
    routes: tuple[Route, ...]
    promised: tuple[HeaderNames, ...] | None = None
    """What the authorization service may set beside ``Auth-*``; None if the host has no authorization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What the origin is told of the client's certificate."""

    subject: bool = False
    certificate: bool = False
    chain: bool = False
    dns: bool = False
    uri: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificates:
    """Which certificates clients show."""

    ca: bytes | None
    """Whose certificates; None, if any will do."""
    verified: bool = True
    """Whether a certificate has to be one that ``ca`` signed, or is only passed on: the author asked for it."""
    required: bool = True
    revoked: bytes | None = None
    """Certificate revocation lists, PEM."""
    leaf_only: bool = False
    forwarded: Forwarded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureHost:
    """A virtual host behind TLS."""

    host: Host
    certificate: ObjectName
    limits: TlsLimits = NO_LIMITS
    clients: ClientCertificates | None = None
    elsewhere: tuple[str, ...]
    """Names that this host's wildcard covers and that others claim: they are misdirected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Serves clients that name no host, or one that nobody serves, in TLS. Hosts are sorted by name, not empty."""

    certificate: ObjectName
    limits: TlsLimits
    """The strictest minimum of the hosts."""
    hosts: tuple[Host, ...]
    elsewhere: tuple[str, ...]
    """Names that wildcards of these hosts cover and that others claim: they are misdirected here."""


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


# --- Gateways


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A backend's share of a route's requests, and who checks them: the backend decides that, not the route."""

    cluster: str | None
    """None if the backend cannot be found: its share is answered 500, and goes to no other."""
    weight: int
    """Above zero."""
    authorization: RouteAuthorization
    host: str = ""
    """What the backend sees as host; empty leaves the client's."""
    mcp: bool = False
    """The backend is an MCP server: its clients read JSON-RPC."""


@dataclass(frozen=True, slots=True)
class NewPrefix:
    """Takes the place of the path that the route's match names."""

    path: str


@dataclass(frozen=True, slots=True)
class NewPath:
    """Takes the place of the whole path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Sends requests to backends; there is at least one."""

    shares: tuple[Share, ...]
    timeout: Timeout = UseDefault()
    idle: Timeout = UseDefault()
    """How long a request or its answer may stand still."""
    rewrite: NewPrefix | NewPath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetadata:
    """Tells who issues tokens for what is at a path (RFC 9728), to everybody."""

    scheme: str
    path: str
    issuers: tuple[str, ...]
    """At least one."""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRoute:
    """What happens to the requests that match."""

    name: str
    """The HTTPRoute and the rule, for logs."""
    match: Match
    action: Split | ResourceMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayHost:
    """A host name of a listener: one name, ``*.`` and a name, or ``*``; routes are in the order of precedence."""

    name: str
    routes: tuple[GatewayRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayChain:
    """A listener of a Gateway behind TLS."""

    name: str
    hostname: str
    """Whom clients name in TLS; ``*`` is anybody, or nobody."""
    certificates: tuple[ObjectName, ...]
    clients: ClientCertificates | None
    limits: TlsLimits = NO_LIMITS
    hosts: tuple[GatewayHost, ...]
    elsewhere: tuple[str, ...]
    """Names that this listener covers and that others on the port have: they are misdirected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPort:
    """A port for HTTP. Hosts are sorted by name, and not empty."""

    where: Address
    hosts: tuple[GatewayHost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurePort:
    """A port for HTTPS. Chains are sorted by name, and not empty."""

    where: Address
    chains: tuple[GatewayChain, ...]


GatewayPort: TypeAlias = PlainPort | SecurePort


# --- Everything


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How long the proxy waits for clients, and which proxies before it it believes."""

    request: Timeout = UseDefault()
    connection_idle: Timeout = UseDefault()
    stream_idle: Timeout = UseDefault()
    max_connection_duration: Timeout = UseDefault()
    delayed_close: Timeout = UseDefault()
    shutdown_grace_period: Timeout = UseDefault()
    trusted_hops: int = 0
    """How many proxies stand before this one, and write the addresses of their clients to ``x-forwarded-for``."""


DEFAULT_CONNECTIONS: Final = ConnectionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything the gateway does. Each tuple is sorted by name."""

    http: Address
    https: Address
    connections: ConnectionSettings = DEFAULT_CONNECTIONS
    plain_hosts: tuple[Host, ...] = ()
    secure_hosts: tuple[SecureHost, ...] = ()
    fallback: Fallback | None = None
    refused: tuple[str, ...] = ()
    """Withdrawn names that a wildcard on the plain listener would answer for."""
    gateways: tuple[GatewayPort, ...] = ()
    """By port."""
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The key sets of issuers, as JSON, by address."""
    grpc_servers: tuple[GrpcServer, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[Certificate | CertificateFiles, ...] = ()
