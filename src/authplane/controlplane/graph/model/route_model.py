"""Routes, and their actions."""

from typing import TypeAlias

from authplane.controlplane.graph.model.match_model import Match
from authplane.controlplane.graph.model.match_words import match_words
from authplane.controlplane.graph.model.route_authorization import ByTarget, RouteAuthorization
from authplane.controlplane.graph.model.upstreams import Mirror
from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.timeouts import Timeout, UseDefault
from authplane.core.values import dataclass

# --- Sending on


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster's share of a route's requests."""

    cluster: str | None
    """None if the backend cannot be found: its share is answered 500, and goes to no other."""
    weight: int
    host: str | None = None
    """The host that the origin gets; None leaves it to the route, and an empty one to the client."""
    mcp: bool = False
    """It is an MCP server: its clients read JSON-RPC."""
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS


@dataclass(frozen=True, slots=True)
class NewPrefix:
    """Takes the place of the text that the match names; after ``Segments``, ``/`` takes that of the next slash too."""

    path: str


@dataclass(frozen=True, slots=True)
class NewPath:
    """Takes the place of the whole path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Sends the request on; there is at least one target with a weight above zero."""

    targets: tuple[Target, ...]
    mirror: Mirror | None = None
    response_timeout: Timeout = UseDefault()
    idle_timeout: Timeout = UseDefault()
    """How long a request or its response may be idle."""
    rewrite: NewPrefix | NewPath | None = None
    host: str = ""
    """The host that the origin gets; empty keeps the client's."""
    websockets: bool = False

    @property
    def clusters(self) -> tuple[str, ...]:
        """Every cluster that gets requests of the route, the mirror included."""
        mirrored = () if self.mirror is None else (self.mirror.cluster,)
        return (*(target.cluster for target in self.targets if target.cluster is not None), *mirrored)


# --- Answering


@dataclass(frozen=True, slots=True)
class RedirectToHttps:
    """Answers 301 to the same path on HTTPS."""

    port: int
    host: str = ""
    """Empty means the host of the request, which a wildcard host needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """Answers 301 or 302 to another address; what is not given stays as it was."""

    status: int
    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str | None = None
    prefix: str | None = None
    """Replaces the matched prefix; never with ``path``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The proxy answers without an origin."""

    status: int
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetadata:
    """Serves the protected resource metadata of a path (RFC 9728), without authorization."""

    scheme: str
    path: str
    issuers: tuple[str, ...]
    """At least one."""
    scopes: tuple[str, ...] = ()


Action: TypeAlias = Forward | RedirectToHttps | Redirect | Respond | ResourceMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A match, and what happens to its requests."""

    holder: str
    """The resource that has the route: an HTTPProxy (root or included), an HTTPRoute, or a Gateway's listener."""
    match: Match
    action: Action
    authorization: RouteAuthorization | ByTarget
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS

    @property
    def name(self) -> str:
        """The name for logs."""
        return f"{self.holder}#{match_words(self.match)}"

    @property
    def authorizations(self) -> tuple[RouteAuthorization, ...]:
        """The authorization of requests: the same for all, or one for each target."""
        given = self.authorization
        return given.each if isinstance(given, ByTarget) else (given,)
