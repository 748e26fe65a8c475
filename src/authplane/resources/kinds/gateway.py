"""Gateway API's kinds: Gateway, HTTPRoute and ReferenceGrant."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.meta import NOTHING, Meta
from authplane.resources.typed.schema import Filled, Given, Length, Named, OneOf, Range, Upstream

_PORT: Final = Range(1, 65535)
_NAME: Final = Length(1, 253)
_HOST: Final = Length(1, 253)
_GATEWAY: Final = "gateway.networking.k8s.io"


# --- Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Names a Secret."""

    group: str = ""
    kind: str = "Secret"
    name: Annotated[str, _NAME]
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendValidation:
    """Which client certificates are accepted."""

    ca_certificate_refs: Annotated[tuple[SecretRef, ...], Length(1, 16)]
    mode: Annotated[str, OneOf(("AllowValidOnly", "AllowInsecureFallback"))] = "AllowValidOnly"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """``listeners[].tls``."""

    mode: Annotated[str, OneOf(("Terminate", "Passthrough"))] = "Terminate"
    certificate_refs: Annotated[tuple[SecretRef, ...], Length(0, 64)] = ()
    frontend_validation: FrontendValidation | None = None
    options: Mapping[str, str] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNamespaces:
    """The namespaces whose routes may attach."""

    from_: Annotated[str, Named("from"), OneOf(("All", "Same", "Selector", "None"))] = "Same"

    UPSTREAM: ClassVar = Upstream(refused=("selector",))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteKind:
    """A kind of route."""

    group: str = _GATEWAY
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedRoutes:
    """Which routes may attach."""

    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteKind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayListener:
    """One port of a Gateway, for one host name or all."""

    name: Annotated[str, _NAME]
    hostname: Annotated[str, _HOST] | None = None
    port: Annotated[int, _PORT]
    protocol: Annotated[str, Length(1, 255)]
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendTls:
    """What HTTPS listeners require of clients."""

    validation: Annotated[FrontendValidation | None, Filled()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTls:
    """What the HTTPS listeners of one port require of clients."""

    port: Annotated[int, _PORT]
    tls: FrontendTls


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFrontend:
    """What all HTTPS listeners of a Gateway require of clients."""

    default: FrontendTls
    """For the ports that ``perPort`` does not name."""
    per_port: Annotated[tuple[PortTls, ...], Length(0, 64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTls:
    """``spec.tls`` of a Gateway."""

    frontend: Annotated[GatewayFrontend | None, Filled()] = None

    UPSTREAM: ClassVar = Upstream(refused=("backend",))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """``spec`` of a Gateway."""

    gateway_class_name: Annotated[str, Length(1)] = "authplane"
    listeners: Annotated[tuple[GatewayListener, ...], Length(1, 64)]
    tls: Annotated[GatewayTls | None, Filled()] = None

    UPSTREAM: ClassVar = Upstream(
        silent=("infrastructure",), ignored=("addresses",), refused=("allowedListeners", "backendTLS")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where clients connect."""

    metadata: Meta
    spec: GatewaySpec


# --- HTTPRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentRef:
    """The Gateway a route attaches to."""

    group: str = _GATEWAY
    kind: str = "Gateway"
    namespace: str = ""
    name: Annotated[str, _NAME]
    section_name: str = ""
    port: Annotated[int, _PORT] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPPathMatch:
    """Selects requests by their path."""

    type: Annotated[str, OneOf(("Exact", "PathPrefix", "RegularExpression"))] = "PathPrefix"
    value: Annotated[str, Length(1, 1024)] = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPHeaderMatch:
    """Selects requests by a header."""

    type: Annotated[str, OneOf(("Exact", "RegularExpression"))] = "Exact"
    name: Annotated[str, Length(1, 256)]
    value: Annotated[str, Length(1, 4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPQueryParamMatch:
    """Selects requests by a parameter of the query."""

    type: Annotated[str, OneOf(("Exact", "RegularExpression"))] = "Exact"
    name: Annotated[str, Length(1, 256)]
    value: Annotated[str, Length(1, 1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRouteMatch:
    """Selects requests: all given conditions must match."""

    path: HTTPPathMatch = HTTPPathMatch()
    headers: Annotated[tuple[HTTPHeaderMatch, ...], Length(0, 16)] = ()
    query_params: Annotated[tuple[HTTPQueryParamMatch, ...], Length(0, 16)] = ()
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPBackendRef:
    """A Service or a Backend, and its share of the requests."""

    group: str = ""
    kind: str = "Service"
    name: Annotated[str, _NAME]
    namespace: str = ""
    port: Annotated[int, _PORT] | None = None
    weight: Annotated[int, Range(0, 1_000_000)] = 1

    filters: Annotated[bool, Given()] = False
    """Not supported: the graph refuses routes with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathModifier:
    """Replaces the path, or the matched prefix."""

    type: Annotated[str, OneOf(("ReplaceFullPath", "ReplacePrefixMatch"))]
    replace_full_path: Annotated[str, Length(0, 1024)] | None = None
    replace_prefix_match: Annotated[str, Length(0, 1024)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRewrite:
    """What backends receive instead of the client's URL."""

    hostname: Annotated[str, _HOST] | None = None
    path: PathModifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRouteFilter:
    """Changes requests on their way."""

    type: Annotated[
        str,
        OneOf((
            "CORS", "ExtensionRef", "ExternalAuth", "RequestHeaderModifier", "RequestMirror", "RequestRedirect",
            "ResponseHeaderModifier", "URLRewrite",
        )),
    ]  # fmt: skip
    """Those of the Gateway API; the graph refuses routes with any other than ``URLRewrite``."""
    url_rewrite: UrlRewrite | None = None
    cors: Annotated[bool, Given()] = False
    extension_ref: Annotated[bool, Given()] = False
    external_auth: Annotated[bool, Given()] = False
    request_header_modifier: Annotated[bool, Given()] = False
    request_mirror: Annotated[bool, Given()] = False
    request_redirect: Annotated[bool, Given()] = False
    response_header_modifier: Annotated[bool, Given()] = False

    @property
    def supported(self) -> bool:
        """Whether it is a rewrite and nothing else."""
        others = (
            self.cors, self.extension_ref, self.external_auth, self.request_header_modifier, self.request_mirror,
            self.request_redirect, self.response_header_modifier,
        )  # fmt: skip
        return self.type == "URLRewrite" and not any(others)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTimeouts:
    """How long requests may take; durations as text."""

    request: str = ""
    backend_request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRouteRule:
    """Sends requests that one of the matches selects to backends."""

    name: str = ""
    matches: Annotated[tuple[HTTPRouteMatch, ...], Length(0, 64)] = (HTTPRouteMatch(),)
    filters: Annotated[tuple[HTTPRouteFilter, ...], Length(0, 16)] = ()
    backend_refs: Annotated[tuple[HTTPBackendRef, ...], Length(0, 16)] = ()
    timeouts: RouteTimeouts | None = None

    UPSTREAM: ClassVar = Upstream(ignored=("retry", "sessionPersistence"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRouteSpec:
    """``spec`` of an HTTPRoute."""

    parent_refs: Annotated[tuple[ParentRef, ...], Length(0, 32)] = ()
    hostnames: Annotated[tuple[Annotated[str, _HOST], ...], Length(0, 16)] = ()
    rules: Annotated[tuple[HTTPRouteRule, ...], Length(0, 16)] = (HTTPRouteRule(),)

    UPSTREAM: ClassVar = Upstream(ignored=("useDefaultGateways",))


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRoute:
    """Routes of a Gateway."""

    metadata: Meta
    spec: HTTPRouteSpec


# --- ReferenceGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFrom:
    """Who may refer: a kind in a namespace."""

    group: str
    kind: Annotated[str, Length(1)]
    namespace: Annotated[str, Length(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTo:
    """What may be referred to: a kind, or one object of it."""

    group: str
    kind: Annotated[str, Length(1)]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGrantSpec:
    """``spec`` of a ReferenceGrant."""

    origins: Annotated[tuple[GrantFrom, ...], Named("from"), Length(1, 16)]
    targets: Annotated[tuple[GrantTo, ...], Named("to"), Length(1, 16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGrant:
    """Lets objects of other namespaces refer to objects of its own."""

    metadata: Meta
    spec: ReferenceGrantSpec
