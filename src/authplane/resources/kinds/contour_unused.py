"""Policies of an HTTPProxy that have no effect here: they are read, so that what Contour refuses is refused."""

import re
from typing import Annotated, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import COUNT, HeaderValue
from authplane.resources.typed.schema import Given, Length, Matches, Named, OneOf, Range

_TERMS: Final = r"(?:\d*(?:\.\d*)?(?:h|ms|m|s|us|µs|ns))+"
_DURATION: Final = Matches(re.compile(rf"{_TERMS}|infinity|infinite"), "10s", "a duration")
_MAX_AGE: Final = Matches(re.compile(rf"{_TERMS}|0"), "10m", "a duration")
_TOKEN: Final = Matches(re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+"), "GET")
_COOKIE: Final = Matches(re.compile(r"[^()<>@,;:\\\"/\[\]?={} \t\x7f\x00-\x1f]+"), "session")
_ATTRIBUTE: Final = Matches(re.compile(r"[^;\x7f\x00-\x1f]+"), "/app", "a text")
_DOMAIN: Final = Matches(
    re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"), "app.example.com"
)
_RETRY_ON: Final = OneOf(
    (
        "5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited",
        "retriable-4xx", "refused-stream", "retriable-status-codes", "retriable-headers", "http3-post-connect-failure",
        "cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsPolicy:
    """``virtualhost.corsPolicy``."""

    allow_credentials: bool = False
    allow_origin: Annotated[tuple[str, ...], Length(1)]
    """Origins or patterns of them, which the graph tells apart."""
    allow_methods: Annotated[tuple[Annotated[str, _TOKEN], ...], Length(1)]
    allow_headers: Annotated[tuple[Annotated[str, _TOKEN], ...], Length(1)] = ()
    expose_headers: Annotated[tuple[Annotated[str, _TOKEN], ...], Length(1)] = ()
    max_age: Annotated[str, _MAX_AGE] = ""
    allow_private_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRateLimit:
    """``rateLimitPolicy.local``."""

    requests: Annotated[int, Range(1, 2**32 - 1)]
    unit: Annotated[str, OneOf(("second", "minute", "hour"))]
    burst: Annotated[int, COUNT] = 0
    response_status_code: Annotated[int, Range(400, 599)] = 429
    response_headers_to_add: tuple[HeaderValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitPolicy:
    """``rateLimitPolicy`` of a host or a route."""

    local: LocalRateLimit | None = None
    shared: Annotated[bool, Given(), Named("global")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CookiePath:
    """``pathRewrite``."""

    value: Annotated[str, Length(1, 4096), _ATTRIBUTE]


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieDomain:
    """``domainRewrite``."""

    value: Annotated[str, Length(1, 4096), _DOMAIN]


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieRewritePolicy:
    """One of ``cookieRewritePolicies``."""

    name: Annotated[str, Length(1, 4096), _COOKIE]
    path_rewrite: CookiePath | None = None
    domain_rewrite: CookieDomain | None = None
    secure: bool | None = None
    same_site: Annotated[str, OneOf(("Strict", "Lax", "None"))] | None = None

    @property
    def rewrites(self) -> bool:
        """Whether it changes anything."""
        given = (self.path_rewrite, self.domain_rewrite, self.secure, self.same_site)
        return any(each is not None for each in given)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """``retryPolicy`` of a route."""

    count: Annotated[int, Range(-1, 2**63 - 1)] = 1
    per_try_timeout: Annotated[str, _DURATION] = ""
    retry_on: tuple[Annotated[str, _RETRY_ON], ...] = ()
    retriable_status_codes: tuple[Annotated[int, COUNT], ...] = ()
