"""Contour's ExtensionService."""

import re
from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import (
    PORT,
    WEIGHT,
    CircuitBreakers,
    LoadBalancerPolicy,
    TimeoutPolicy,
    UpstreamValidation,
)
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Length, Matches, OneOf, Upstream

_PROTOCOL: Final = OneOf(("", "h2", "h2c", "http/1.1"))
_HOST: Final = r"[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?"
_SERVER_NAME: Final = Matches(re.compile(_HOST), "auth.example.com")
_AUTHORITY: Final = Matches(re.compile(rf"({_HOST}|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?"), "auth.example.com:9443")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionServiceTarget:
    """A Service in the ExtensionService's own namespace."""

    name: Annotated[str, Length(1)]
    port: Annotated[int, PORT]
    weight: Annotated[int, WEIGHT] = 0
    protocol: Annotated[str, _PROTOCOL] | None = None
    validation: UpstreamValidation | None = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("cookieRewritePolicies", "healthPort", "requestHeadersPolicy", "responseHeadersPolicy",
                 "slowStartPolicy"),
        refused=("mirror",),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionServiceSpec:
    """``spec`` of an ExtensionService. Protocol and validation are set here or in each service."""

    services: Annotated[tuple[ExtensionServiceTarget, ...], Length(1)]
    protocol: Annotated[str, _PROTOCOL] | None = None
    validation: UpstreamValidation | None = None
    load_balancer_policy: LoadBalancerPolicy = LoadBalancerPolicy()
    timeout_policy: TimeoutPolicy = TimeoutPolicy()
    protocol_version: Annotated[str, OneOf(("v2", "v3"))] = "v3"
    circuit_breaker_policy: CircuitBreakers | None = None
    server_name: Annotated[str, Length(1, 253), _SERVER_NAME] | None = None
    """Extension: the server name (SNI) of TLS. Default: the first subject name."""
    authority: Annotated[str, Length(1, 253), _AUTHORITY] | None = None
    """Extension: the host (authority) of a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionService:
    """A service that extends the proxy: here, one that authorizes requests."""

    metadata: Meta
    spec: ExtensionServiceSpec
