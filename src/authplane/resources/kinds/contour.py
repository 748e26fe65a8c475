"""Contour's kinds that route: HTTPProxy and TLSCertificateDelegation.

What decoding refuses is what the API server would refuse by the kind's schema. What an API server lets through and a
controller must judge (references, durations, combinations) is for the graph.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import (
    PORT,
    WEIGHT,
    Authorization,
    AuthPolicy,
    HeadersPolicy,
    LoadBalancerPolicy,
    MatchCondition,
    TimeoutPolicy,
    UpstreamValidation,
)
from authplane.resources.kinds.contour_unused import CookieRewritePolicy, CorsPolicy, RateLimitPolicy, RetryPolicy
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Filled, Length, OneNumberOf, OneOf, Range, Unused, Upstream

CLASS_ANNOTATIONS: Final = ("projectcontour.io/ingress.class", "kubernetes.io/ingress.class")
"""What gives an HTTPProxy its ingress class before ``spec.ingressClassName``: the first of them that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardClientCertificate:
    """What Envoy forwards about the client's certificate (``x-forwarded-client-cert``)."""

    subject: bool = False
    cert: bool = False
    chain: bool = False
    dns: bool = False
    uri: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientValidation:
    """``virtualhost.tls.clientValidation``."""

    ca_secret: str = ""
    skip_client_cert_validation: bool = False
    forward_client_certificate: ForwardClientCertificate | None = None
    crl_secret: str = ""
    crl_only_verify_leaf_cert: bool = False
    optional_client_certificate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """``virtualhost.tls``."""

    secret_name: str = ""
    minimum_protocol_version: str = ""
    maximum_protocol_version: str = ""
    passthrough: bool = False
    client_validation: Annotated[ClientValidation | None, Filled()] = None
    enable_fallback_certificate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """Makes an HTTPProxy a root."""

    fqdn: Annotated[str, Length(1, 253)]
    tls: Annotated[Tls | None, Filled()] = None
    authorization: Annotated[Authorization | None, Filled()] = None
    cors_policy: Annotated[CorsPolicy | None, Unused()] = None
    rate_limit_policy: Annotated[RateLimitPolicy | None, Unused()] = None

    UPSTREAM: ClassVar = Upstream(
        refused=("ipAllowPolicy", "ipDenyPolicy", "jwtProviders"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteService:
    """A Service in the HTTPProxy's own namespace."""

    name: Annotated[str, Length(1)]
    port: Annotated[int, PORT]
    weight: Annotated[int, WEIGHT] = 0
    """The share of the requests; of a mirror, the percentage that is copied, where 0 is all."""
    mirror: bool = False
    """Copies requests to the Service and drops its answers."""
    protocol: Annotated[str, OneOf(("h2", "h2c", "tls"))] | None = None
    validation: UpstreamValidation | None = None
    request_headers_policy: HeadersPolicy | None = None
    response_headers_policy: HeadersPolicy | None = None
    cookie_rewrite_policies: Annotated[tuple[CookieRewritePolicy, ...], Unused()] = ()

    UPSTREAM: ClassVar = Upstream(ignored=("healthPort", "slowStartPolicy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePrefix:
    """Replaces the matched prefix of the path."""

    prefix: str = ""
    replacement: Annotated[str, Length(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRewritePolicy:
    """How the path is rewritten for the origin."""

    replace_prefix: tuple[ReplacePrefix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRedirectPolicy:
    """Answers with a redirect."""

    scheme: Annotated[str, OneOf(("http", "https"))] | None = None
    hostname: Annotated[str, Length(1, 253)] | None = None
    port: Annotated[int, PORT] | None = None
    status_code: Annotated[int, OneNumberOf((301, 302, 303, 307, 308))] = 302
    path: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResponsePolicy:
    """Answers directly, without a service."""

    status_code: Annotated[int, Range(200, 599)]
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Sends matching requests to services, or answers them."""

    conditions: tuple[MatchCondition, ...] = ()
    services: tuple[RouteService, ...] = ()
    auth_policy: AuthPolicy | None = None
    permit_insecure: bool = False
    enable_websockets: bool = False
    timeout_policy: TimeoutPolicy | None = None
    load_balancer_policy: LoadBalancerPolicy | None = None
    path_rewrite_policy: PathRewritePolicy | None = None
    request_headers_policy: HeadersPolicy | None = None
    response_headers_policy: HeadersPolicy | None = None
    request_redirect_policy: RequestRedirectPolicy | None = None
    direct_response_policy: DirectResponsePolicy | None = None
    cookie_rewrite_policies: Annotated[tuple[CookieRewritePolicy, ...], Unused()] = ()
    rate_limit_policy: Annotated[RateLimitPolicy | None, Unused()] = None
    retry_policy: Annotated[RetryPolicy | None, Unused()] = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("healthCheckPolicy", "internalRedirectPolicy"),
        refused=("ipAllowPolicy", "ipDenyPolicy", "jwtVerificationPolicy"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Includes the routes of another HTTPProxy."""

    name: Annotated[str, Length(1)]
    namespace: str = ""
    conditions: tuple[MatchCondition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TCPProxy:
    """Passes connections on; not supported, and the graph says so."""

    UPSTREAM: ClassVar = Upstream(silent=("healthCheckPolicy", "include", "includes", "loadBalancerPolicy", "services"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPProxySpec:
    """``spec`` of an HTTPProxy."""

    virtualhost: VirtualHost | None = None
    routes: tuple[Route, ...] = ()
    includes: tuple[Include, ...] = ()
    tcpproxy: Annotated[TCPProxy | None, Filled()] = None
    ingress_class_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPProxy:
    """Routes of a virtual host."""

    metadata: Meta
    spec: HTTPProxySpec

    @property
    def ingress_class(self) -> str:
        """Which controllers serve it, as Contour reads it; empty if it says nothing."""
        return chosen_class(self.metadata.annotations) or self.spec.ingress_class_name


def chosen_class(annotations: Mapping[str, str]) -> str:
    """Return the ingress class that annotations give; empty if they give none."""
    return next((annotations[each] for each in CLASS_ANNOTATIONS if each in annotations), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateDelegation:
    """A Secret and the namespaces that may use it; ``*`` is all of them."""

    secret_name: Annotated[str, Length(1)]
    target_namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSCertificateDelegationSpec:
    """``spec`` of a TLSCertificateDelegation."""

    delegations: tuple[CertificateDelegation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSCertificateDelegation:
    """Lets other namespaces use Secrets of its own namespace."""

    metadata: Meta
    spec: TLSCertificateDelegationSpec
