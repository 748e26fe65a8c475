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
    """Provider of the server's certificate and key."""
    client_ca_provider: Annotated[str, _NAME] | None = None
    """Provider of the clients' CAs. If set, every client must present a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcBackend:
    """A gRPC server that enforces policies by itself: the address where it listens."""

    address: Annotated[str, Length(1, 64)] = "0.0.0.0"  # noqa: S104 (a server is there to be reached)
    port: Annotated[int, _PORT]
    tls: Annotated[GrpcTls | None, Filled()] = None
    policy_server_ca_provider: Annotated[str, _NAME] | None = None
    """Provider of the policy server's CA. Required if the policy server has TLS."""
    policy_server_certificate_provider: Annotated[str, _NAME] | None = None
    """Provider of the certificate and key that this server presents to the policy server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """``spec`` of a Backend: only the member that ``type`` names is set."""

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

MATCH_BASE: Final = "MATCH_BASE_PROTOCOL_METHODS"
_MODE: Final = OneOf(("Enforce", "Shadow"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRef:
    """The target of a policy, in the policy's own namespace."""

    group: str | None = None
    """Default: the group of the kind."""
    kind: Annotated[str, Length(1, 63)]
    name: Annotated[str, _NAME]
    section_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountSource:
    """A ServiceAccount. Short form: ``namespace/name``."""

    SHORTHAND: ClassVar = "name"

    name: Annotated[str, Length(1, 317)]
    namespace: str = ""
    """Default: the namespace of the policy."""


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
    """A CEL expression. Short form: the expression as a string."""

    SHORTHAND: ClassVar = "expression"

    expression: Annotated[str, Length(1)]
    message: Annotated[str, Length(0, 1024)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRef:
    """The Service of an external authorization service."""

    group: str = ""
    kind: str = "Service"
    name: Annotated[str, _NAME]
    namespace: str = ""
    port: Annotated[int, _PORT] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcAuth:
    """Settings of checks over gRPC."""

    allowed_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    """Request headers in the check. Default: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAuth:
    """Settings of checks over HTTP."""

    path: Annotated[str, Length(0, 1024)] = ""
    allowed_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    allowed_response_headers: Annotated[tuple[str, ...], Length(0, 64)] = ()
    """Headers of the response that are copied to the request. Default: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBody:
    """How much of the request body the check contains."""

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
    """An MCP method, or a family of methods, and the names that its parameters may have."""

    name: Annotated[str, Length(1, 128)]
    params: Annotated[tuple[Annotated[str, Length(1, 128)], ...], Length(0, 64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAttributes:
    """The MCP methods and tools that are granted."""

    methods: Annotated[tuple[McpMethod, ...], Length(0, 64)] = ()
    mcp_base_protocol_methods_option: Annotated[str, OneOf(("", MATCH_BASE, "SKIP_BASE_PROTOCOL_METHODS"))] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRule:
    """A header that the request must have with this value."""

    name: Annotated[str, Length(1, 256)]
    value: Annotated[str, Length(0, 4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """A path that the request may have. Short form: ``pattern``; otherwise an HTTPPathMatch of the Gateway API."""

    SHORTHAND: ClassVar = "pattern"

    pattern: Annotated[str, Length(1, 1024)] | None = None
    """A whole path, or a prefix that ends with ``*``."""
    type: Annotated[str, OneOf(("Exact", "PathPrefix"))] | None = None
    """How ``value`` is compared. Default: ``PathPrefix``, by whole segments."""
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
    """Who the rule applies to. Default: every caller."""
    authorization: Annotated[tuple[AuthorizationEntry, ...], OneOrMany(), Length(0, 64)] | None = None
    tools: Annotated[tuple[Annotated[str, Length(1, 128)], ...], Length(0, 1024)] | None = None
    """The earlier form of ``authorization``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicySpec:
    """``spec`` of an AccessPolicy."""

    target_refs: Annotated[tuple[TargetRef, ...], Length(0, 10)]
    mode: Annotated[str, _MODE] = "Enforce"
    """``Shadow`` evaluates the policy for every request and never denies one."""
    rules: Annotated[tuple[AccessRule, ...], Length(0, 64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """Who may do what with a Backend or a Gateway. Requests that no rule grants are denied."""

    metadata: Meta
    spec: AccessPolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class XAccessPolicyV0:
    """The first XAccessPolicy: every caller may use the base methods."""

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
