"""What happens to the requests that a route takes."""

from dataclasses import dataclass
from typing import TypeAlias

from authplane.controlplane.graph.model.match_model import Match
from authplane.controlplane.graph.model.route_authorization import RouteAuthorization
from authplane.controlplane.graph.model.upstreams import Mirror
from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.names import ObjectName
from authplane.core.timeouts import Timeout, UseDefault


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
