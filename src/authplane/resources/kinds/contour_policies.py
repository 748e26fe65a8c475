"""What Contour's kinds share: policies, references and conditions."""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.meta import NOTHING
from authplane.resources.typed.schema import Filled, Length, Matches, Named, OneOf, Range, Upstream

WEIGHT: Final = Range(0, 2**32 - 1)
PORT: Final = Range(1, 65535)
COUNT: Final = Range(0, 2**32 - 1)
DNS_NAME: Final = Matches(re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?"), "auth.example.com")
_MOST_BODY: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamValidation:
    """How to verify the certificate of an upstream."""

    ca_secret: Annotated[str, Length(1, 317)]
    subject_name: Annotated[str, Length(1, 250), DNS_NAME]
    subject_names: Annotated[tuple[Annotated[str, Length(1, 250), DNS_NAME], ...], Length(1, 8)] = ()


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
class CircuitBreakers:
    """Limits of an upstream. Zero: the default of Envoy."""

    max_connections: Annotated[int, COUNT] = 0
    max_pending_requests: Annotated[int, COUNT] = 0
    max_requests: Annotated[int, COUNT] = 0
    max_retries: Annotated[int, COUNT] = 0
    per_host_max_connections: Annotated[int, COUNT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacedName:
    """Refers to an object in a namespace."""

    name: Annotated[str, Length(1)]
    namespace: Annotated[str, Length(1)]


# --- Authorization


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionRef:
    """Refers to an ExtensionService."""

    api_version: Annotated[str, Named("apiVersion")] = "projectcontour.io/v1alpha1"
    kind: str = "ExtensionService"
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPolicy:
    """Disables authorization, or adds context to the check."""

    disabled: bool = False
    context: Mapping[str, str] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHeader:
    """Selects headers by name, with exactly one of the four tests."""

    exact: str = ""
    prefix: str = ""
    suffix: str = ""
    contains: str = ""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Settings of checks over HTTP."""

    path_prefix: str = ""
    allowed_authorization_headers: tuple[AllowedHeader, ...] = ()
    """Headers of the request that reach the service."""
    allowed_upstream_headers: tuple[AllowedHeader, ...] = ()
    """Headers of the service's answer that reach the origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """How much of the request body the check contains."""

    max_request_bytes: Annotated[int, Range(1, _MOST_BODY)] = 1024
    allow_partial_message: bool = False
    pack_as_bytes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """``virtualhost.authorization``, and ``globalExtAuth``."""

    extension_ref: ExtensionRef = ExtensionRef()
    service_type: Annotated[str, OneOf(("", "grpc", "http"))] = ""
    http_settings: HttpSettings | None = None
    auth_policy: AuthPolicy | None = None
    fail_open: bool = False
    response_timeout: str = ""
    with_request_body: RequestBody | None = None


# --- Conditions and headers of routes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCondition:
    """Selects requests by a header; exactly one test, which the graph requires."""

    name: Annotated[str, Length(1)]
    present: bool = False
    notpresent: bool = False
    contains: str = ""
    notcontains: str = ""
    exact: str = ""
    notexact: str = ""
    regex: str = ""
    ignore_case: bool = False
    treat_missing_as_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameterCondition:
    """Selects requests by a parameter of the query; exactly one test, which the graph requires."""

    name: Annotated[str, Length(1)]
    present: bool = False
    exact: str = ""
    prefix: str = ""
    suffix: str = ""
    regex: str = ""
    contains: str = ""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCondition:
    """Selects requests that fulfil all of these; an empty text, as in Contour, asks for nothing."""

    prefix: Annotated[str, Filled()] = ""
    exact: Annotated[str, Filled()] = ""
    regex: Annotated[str, Filled()] = ""
    header: Annotated[HeaderCondition | None, Filled()] = None
    query_parameter: Annotated[QueryParameterCondition | None, Filled()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderValue:
    """A header and its value."""

    name: Annotated[str, Length(1)]
    value: Annotated[str, Length(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadersPolicy:
    """Headers to set and to remove."""

    set: tuple[HeaderValue, ...] = ()
    remove: tuple[str, ...] = ()
