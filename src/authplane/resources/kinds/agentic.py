"""Kinds of the agentic networking group: Backend, AccessPolicy, and the names they had before.

Who wrote the upstream kinds changed their mind more than once about shapes: a list or one object, a text or an object.
All of them are read. What the kinds mean differs as well; that is for those who compile policies.
"""

from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.meta import LABEL, Meta
from authplane.resources.typed.schema import Filled, Length, OneOf, OneOrMany, Range

_PORT: Final = Range(1, 65535)
_NAME: Final = Length(1, 253)


# --- Backends


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBackend:
    """An MCP server: a Service in the Backend's namespace, an external host name, or a URL; one of the three.

    `authplane.resources.mcp_places` says which, and has the defaults.
    """

    service_name: Annotated[str, _NAME] | None = None
    hostname: Annotated[str, _NAME] | None = None
    url: Annotated[str, Length(1, 2048)] | None = None
    """Scheme, host, port and path in one. An extension: the upstream kind has no such field."""
    port: Annotated[int, _PORT] | None = None
    """Required with ``serviceName`` and ``hostname``; a URL has its own."""
    path: str | None = None
    """``/mcp`` by default; a URL has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcTls:
    """TLS of a gRPC server, by the names that certificate providers have in its bootstrap."""

    certificate_provider: Annotated[str, _NAME]
    """Has the certificate that the server shows, and its key."""
    client_ca_provider: Annotated[str, _NAME] | None = None
    """Has the CAs of clients; with it every client has to show a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcBackend:
    """A gRPC server that enforces policies by itself, where it listens."""

    address: Annotated[str, Length(1, 64)] = "0.0.0.0"  # noqa: S104 (a server is there to be reached)
    port: Annotated[int, _PORT]
    tls: Annotated[GrpcTls | None, Filled()] = None
    policy_server_ca_provider: Annotated[str, _NAME] | None = None
    """Has the CA of the policy server, if that is reached over TLS."""
    policy_server_certificate_provider: Annotated[str, _NAME] | None = None
    """Has the certificate, and its key, that this server shows to the policy server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """``spec`` of a Backend: the member that ``type`` names is there, and no other."""

    type: Annotated[str, OneOf(("MCP", "GRPC"))] = "MCP"
    mcp: McpBackend | None = None
    grpc: GrpcBackend | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Something that policies protect."""

    metadata: Meta
    spec: BackendSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class XBackend:
    """The earlier name of a Backend."""

    metadata: Meta
    spec: BackendSpec


# --- Policies

_MODE: Final = OneOf(("Enforce", "Shadow"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRef:
    """Names what a policy protects, in the policy's own namespace."""

    group: str | None = None
    """Left out, it is that of the kind."""
    kind: Annotated[str, Length(1, 63)]
    name: Annotated[str, _NAME]
    section_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountSource:
    """A ServiceAccount; as a text it is ``namespace/name``."""

    SHORTHAND: ClassVar = "name"

    name: Annotated[str, Length(1, 317)]
    namespace: str = ""
    """Left out, it is the policy's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSource:
    """Tokens of an issuer."""

    issuer_url: Annotated[str, Length(1, 2048)]
    audiences: Annotated[tuple[str, ...], Length(0, 64)] = ()
    scopes: Annotated[tuple[str, ...], Length(0, 64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who sends the request."""

    type: Annotated[str, OneOf(("ServiceAccount", "SPIFFE", "OIDC"))]
    spiffe: Annotated[tuple[Annotated[str, Length(1, 2048)], ...], OneOrMany()] = ()
    service_account: ServiceAccountSource | None = None
    oidc: OidcSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CelRule:
    """An expression; as a text it is the expression alone."""

    SHORTHAND: ClassVar = "expression"

    expression: Annotated[str, Length(1)]
    message: Annotated[str, Length(0, 1024)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRef:
    """Names the Service of an external authorization service."""

    group: str = ""
    kind: str = "Service"
    name: Annotated[str, _NAME]
    namespace: str = ""
    port: Annotated[int, _PORT] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcAuth:
    """How a service is asked over gRPC."""

    allowed_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    """Empty sends all headers of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAuth:
    """How a service is asked over HTTP."""

    path: Annotated[str, Length(0, 1024)] = ""
    allowed_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    allowed_response_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    """Empty copies all headers of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBody:
    """How much of the request's body goes along."""

    max_size: Annotated[int, Range(0, 65535)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAuth:
    """An external authorization service, as the Gateway API describes one."""

    protocol: Annotated[str, OneOf(("HTTP", "GRPC"))]
    backend_ref: ServiceRef
    grpc: GrpcAuth | None = None
    http: HttpAuth | None = None
    forward_body: ForwardBody | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpMethod:
    """An MCP method, or a family of them, and the names it may be asked for."""

    name: Annotated[str, Length(1, 128)]
    params: Annotated[tuple[Annotated[str, Length(1, 128)], ...], Length(0, 64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAttributes:
    """What of MCP is granted."""

    methods: Annotated[tuple[McpMethod, ...], Length(0, 64)] = ()
    mcp_base_protocol_methods_option: Annotated[
        str, OneOf(("", "MATCH_BASE_PROTOCOL_METHODS", "SKIP_BASE_PROTOCOL_METHODS"))
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRule:
    """A header that the request must have with this value."""

    name: Annotated[str, Length(1, 256)]
    value: Annotated[str, Length(0, 4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """A path that the request may have; as a text it is ``pattern``, otherwise an HTTPPathMatch of the Gateway API."""

    SHORTHAND: ClassVar = "pattern"

    pattern: Annotated[str, Length(1, 1024)] | None = None
    """A whole path, or a beginning that ends with ``*``."""
    type: Annotated[str, OneOf(("Exact", "PathPrefix"))] | None = None
    """How ``value`` is compared; left out, it is ``PathPrefix``: by whole segments."""
    value: Annotated[str, Length(1, 1024)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationEntry:
    """One way in which a request can be granted."""

    type: Annotated[str, OneOf(("InlineTools", "Inline", "CEL", "ExternalAuth"))]
    tools: Annotated[tuple[Annotated[str, Length(1, 128)], ...], Length(0, 1024)] | None = None
    cel: CelRule | None = None
    external_auth: ExternalAuth | None = None
    mcp: McpAttributes | None = None
    methods: tuple[str, ...] = ()
    paths: tuple[PathRule, ...] = ()
    headers: tuple[HeaderRule, ...] = ()
    hosts: tuple[str, ...] = ()
    ports: tuple[Annotated[int, _PORT], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """Who may do what."""

    name: Annotated[str, Length(1, 63), LABEL] | None = None
    source: Annotated[Source | None, Filled()] = None
    """Left out, the rule is for everybody."""
    authorization: Annotated[tuple[AuthorizationEntry, ...], OneOrMany(), Length(0, 64)] | None = None
    tools: Annotated[tuple[Annotated[str, Length(1, 128)], ...], Length(0, 1024)] | None = None
    """The first form of ``authorization``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicySpec:
    """``spec`` of an AccessPolicy."""

    target_refs: Annotated[tuple[TargetRef, ...], Length(0, 10)]
    mode: Annotated[str, _MODE] = "Enforce"
    """In shadow, the policy is asked about every request and heeded about none."""
    rules: Annotated[tuple[AccessRule, ...], Length(0, 64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """Who may do what with a Backend or a Gateway; what no rule grants is denied."""

    metadata: Meta
    spec: AccessPolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class XAccessPolicyV0:
    """The first XAccessPolicy: everybody may call the base methods."""

    metadata: Meta
    spec: AccessPolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class XAccessPolicySpec:
    """``spec`` of a later XAccessPolicy."""

    target_refs: Annotated[tuple[TargetRef, ...], Length(0, 10)]
    mode: Annotated[str, _MODE] = "Enforce"
    action: Annotated[str, OneOf(("Allow", "ExternalAuth"))] = "Allow"
    external_auth: ExternalAuth | None = None
    rules: Annotated[tuple[AccessRule, ...], Length(0, 64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class XAccessPolicy:
    """The later XAccessPolicy: a rule without authorization grants everything."""

    metadata: Meta
    spec: XAccessPolicySpec
