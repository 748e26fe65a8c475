"""Contour's kinds: HTTPProxy and ExtensionService.

What decoding refuses is what the API server would refuse by the kind's schema. What an API server lets through and a
controller must judge (references, durations, combinations) is for the graph.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from authplane.resources.kinds.meta import NOTHING, Meta
from authplane.resources.schema import Filled, Length, Matches, Named, OneOf, Range, Upstream

_WEIGHT: Final = Range(0, 2**32 - 1)
_PORT: Final = Range(1, 65535)
_DNS_NAME: Final = Matches(re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?"), "auth.example.com")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamValidation:
    """How to verify the certificate of an upstream."""

    ca_secret: Annotated[str, Length(1, 317)]
    subject_name: Annotated[str, Length(1, 250), _DNS_NAME]
    subject_names: Annotated[tuple[Annotated[str, Length(1, 250), _DNS_NAME], ...], Length(1, 8)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerPolicy:
    """How requests are spread over endpoints."""

    strategy: str = ""

    UPSTREAM: ClassVar = Upstream(ignored=("requestHashPolicies",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy:
    """Durations as text; the graph reads them."""

    response: str = ""
    idle: str = ""
    idle_connection: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionServiceTarget:
    """A Service in the ExtensionService's own namespace."""

    name: Annotated[str, Length(1)]
    port: Annotated[int, _PORT]
    weight: Annotated[int, _WEIGHT] = 0
    protocol: Annotated[str, OneOf(("h2", "h2c"))] | None = None
    validation: UpstreamValidation | None = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("cookieRewritePolicies", "healthPort", "mirror", "requestHeadersPolicy", "responseHeadersPolicy",
                 "slowStartPolicy")
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionServiceSpec:
    """``spec`` of an ExtensionService. Protocol and validation stand here or in each service."""

    services: Annotated[tuple[ExtensionServiceTarget, ...], Length(1)]
    protocol: Annotated[str, OneOf(("h2", "h2c"))] | None = None
    validation: UpstreamValidation | None = None
    load_balancer_policy: LoadBalancerPolicy = LoadBalancerPolicy()
    timeout_policy: TimeoutPolicy = TimeoutPolicy()
    protocol_version: Annotated[str, OneOf(("v2", "v3"))] = "v3"

    UPSTREAM: ClassVar = Upstream(ignored=("circuitBreakerPolicy",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionService:
    """A service that extends the proxy: here, one that authorizes requests."""

    metadata: Meta
    spec: ExtensionServiceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionRef:
    """Names an ExtensionService."""

    api_version: Annotated[str, Named("apiVersion")] = "projectcontour.io/v1alpha1"
    kind: str = "ExtensionService"
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPolicy:
    """Switches authorization off, or adds context to the check."""

    disabled: bool = False
    context: Mapping[str, str] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """``virtualhost.authorization``."""

    extension_ref: ExtensionRef = ExtensionRef()
    auth_policy: AuthPolicy | None = None
    fail_open: bool = False
    response_timeout: str = ""

    UPSTREAM: ClassVar = Upstream(refused=("httpSettings", "serviceType", "withRequestBody"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """``virtualhost.tls``."""

    secret_name: str = ""
    minimum_protocol_version: Annotated[str, OneOf(("", "1.2", "1.3"))] = ""
    passthrough: bool = False
    enable_fallback_certificate: bool = False

    UPSTREAM: ClassVar = Upstream(refused=("clientValidation", "maximumProtocolVersion"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """Makes an HTTPProxy a root."""

    fqdn: Annotated[str, Length(1, 253)]
    tls: Annotated[Tls | None, Filled()] = None
    authorization: Annotated[Authorization | None, Filled()] = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("corsPolicy", "rateLimitPolicy"),
        refused=("ipAllowPolicy", "ipDenyPolicy", "jwtProviders"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCondition:
    """Selects requests; a route has at most one condition on the path."""

    prefix: str | None = None
    exact: str | None = None

    UPSTREAM: ClassVar = Upstream(refused=("header", "queryParameter", "regex"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteService:
    """A Service in the HTTPProxy's own namespace."""

    name: Annotated[str, Length(1)]
    port: Annotated[int, _PORT]
    weight: Annotated[int, _WEIGHT] = 0
    protocol: Annotated[str, OneOf(("h2c",))] | None = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("cookieRewritePolicies", "healthPort", "mirror", "requestHeadersPolicy", "responseHeadersPolicy",
                 "slowStartPolicy"),
        refused=("validation",),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Sends matching requests to services."""

    conditions: tuple[MatchCondition, ...] = ()
    services: tuple[RouteService, ...] = ()
    auth_policy: AuthPolicy | None = None
    permit_insecure: bool = False

    UPSTREAM: ClassVar = Upstream(
        ignored=(
            "cookieRewritePolicies", "enableWebsockets", "healthCheckPolicy", "internalRedirectPolicy",
            "loadBalancerPolicy", "pathRewritePolicy", "rateLimitPolicy", "requestHeadersPolicy",
            "responseHeadersPolicy", "retryPolicy", "timeoutPolicy",
        ),
        refused=(
            "directResponsePolicy", "ipAllowPolicy", "ipDenyPolicy", "jwtVerificationPolicy", "requestRedirectPolicy",
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPProxySpec:
    """``spec`` of an HTTPProxy."""

    virtualhost: VirtualHost | None = None
    routes: tuple[Route, ...] = ()

    UPSTREAM: ClassVar = Upstream(ignored=("ingressClassName",), refused=("includes", "tcpproxy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPProxy:
    """Routes of a virtual host."""

    metadata: Meta
    spec: HTTPProxySpec
