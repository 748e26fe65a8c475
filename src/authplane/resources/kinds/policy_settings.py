"""``AuthplaneConfiguration.spec``: what holds for all AccessPolicies."""

import re
from typing import Annotated, Final, TypeAlias

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import NamespacedName
from authplane.resources.typed.schema import Filled, Length, Matches, OneOf, Range

TRUST_DOMAIN: Final = Matches(re.compile(r"[a-z0-9._-]{1,255}"), "cluster.local")
BODY: Final = Range(1, 1024 * 1024)

Audiences: TypeAlias = Annotated[tuple[Annotated[str, Length(1, 2048)], ...], Length(1, 16)]
"""What a token must be meant for: at least one, since a token for somebody else must never identify its bearer here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSvids:
    """The issuer's tokens are JWT-SVIDs: they prove SPIFFE ids of one trust domain."""

    trust_domain: Annotated[str, TRUST_DOMAIN]
    audiences: Audiences


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountTokens:
    """The issuer is the cluster: the tokens that it makes for pods prove ServiceAccounts."""

    audiences: Audiences
    verification: Annotated[str, OneOf(("TokenReview", "Keys"))] = "TokenReview"
    """``TokenReview`` asks the cluster; ``Keys`` needs only the issuer's keys, and does not see what was revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """How an issuer of tokens is reached; policies name issuers by ``url``."""

    url: Annotated[str, Length(1, 2048)]
    ca_file: str = ""
    """A PEM file with the certificates that vouch for the issuer, instead of those that everybody trusts."""
    ca_secret: Annotated[NamespacedName | None, Filled()] = None
    allow_private_network: bool = False
    """Lets the issuer's addresses be private or of this machine."""
    jwks_hosts: Annotated[tuple[str, ...], Length(0, 16)] = ()
    """Other hosts that may hold the issuer's keys."""
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
    """What holds for requests to a Backend that no policy protects, neither its own nor one of the Gateway."""
    denial_format: Annotated[str, OneOf(("http403", "jsonrpc200"))] = "http403"
    max_request_body: Annotated[int, BODY] = 65536
    strict: bool = False
    placement: Annotated[str, OneOf(("Auto", "CallOut"))] = "Auto"
    """Who may decide where a Backend or a Gateway says nothing: Envoy where it can, or the policy server alone."""
    body_inspection: Annotated[str, OneOf(("Strict", "Native"))] = "Strict"
    """Who reads the bodies of MCP requests there: the policy server, or Envoy."""
