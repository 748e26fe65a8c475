"""``AuthplaneConfiguration.spec``: settings of all AccessPolicies."""

import re
from typing import Annotated, Final, TypeAlias

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import NamespacedName
from authplane.resources.typed.schema import Filled, Length, Matches, OneOf, Range

TRUST_DOMAIN: Final = Matches(re.compile(r"[a-z0-9._-]{1,255}"), "cluster.local")
BODY: Final = Range(1, 1024 * 1024)

Audiences: TypeAlias = Annotated[tuple[Annotated[str, Length(1, 2048)], ...], Length(1, 16)]
"""Accepted audiences; at least one, because a token for another audience must not identify its bearer here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSvids:
    """The issuer's tokens are JWT-SVIDs: they prove SPIFFE ids of one trust domain."""

    trust_domain: Annotated[str, TRUST_DOMAIN]
    audiences: Audiences


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountTokens:
    """The issuer is the cluster: its tokens for pods prove ServiceAccounts."""

    audiences: Audiences
    verification: Annotated[str, OneOf(("TokenReview", "Keys"))] = "TokenReview"
    """``TokenReview`` calls the cluster. ``Keys`` uses the issuer's keys and does not detect revoked tokens."""
    review_lifetime: str = ""
    """How long a positive review is kept: a duration from 0s to 60s. Default: 60s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """How to connect to an issuer. Policies refer to it by ``url``."""

    url: Annotated[str, Length(1, 2048)]
    ca_file: str = ""
    """A PEM file with the CAs of the issuer. Default: the CAs of the system."""
    ca_secret: Annotated[NamespacedName | None, Filled()] = None
    allow_private_network: bool = False
    """Allows private and loopback addresses of the issuer."""
    jwks_hosts: Annotated[tuple[str, ...], Length(0, 16)] = ()
    """Other hosts that may serve the issuer's keys."""
    clock_skew: str = ""
    """How far the issuer's clock may be off: a duration up to 120s."""
    jwt_svids: Annotated[JwtSvids | None, Filled()] = None
    service_accounts: Annotated[ServiceAccountTokens | None, Filled()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The part of ``spec`` that concerns AccessPolicies."""

    trust_domain: Annotated[str, TRUST_DOMAIN] = "cluster.local"
    issuers: Annotated[tuple[Issuer, ...], Length(0, 256)] = ()
    policy_composition: Annotated[str, OneOf(("All", "Any"))] = "All"
    unprotected_backends: Annotated[str, OneOf(("Deny", "Allow"))] = "Deny"
    """What happens to requests to a Backend without a policy of its own or of its Gateway."""
    denial_format: Annotated[str, OneOf(("http403", "jsonrpc200"))] = "http403"
    max_request_body: Annotated[int, BODY] = 65536
    strict: bool = False
    placement: Annotated[str, OneOf(("Auto", "CallOut"))] = "Auto"
    """Default placement: native where Envoy can decide, or always by the policy server."""
    body_inspection: Annotated[str, OneOf(("Strict", "Native", ""))] | None = None
    """Has no effect any more: Envoy reads MCP messages as strictly as the policy server."""
