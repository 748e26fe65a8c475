"""``AuthplaneConfiguration.spec``: what holds for all AccessPolicies."""

import re
from dataclasses import dataclass
from typing import Annotated, Final

from authplane.resources.kinds.contour_policies import NamespacedName
from authplane.resources.schema import Filled, Length, Matches, OneOf, Range

TRUST_DOMAIN: Final = Matches(re.compile(r"[a-z0-9._-]{1,255}"), "cluster.local")
BODY: Final = Range(1, 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """How an issuer of tokens is reached; policies name issuers by ``url``."""

    url: Annotated[str, Length(1, 2048)]
    ca_file: str = ""
    """A PEM file whose certificates the issuer's own may be signed with, beside those everybody trusts."""
    ca_secret: Annotated[NamespacedName | None, Filled()] = None
    allow_private_network: bool = False
    """Lets the issuer's addresses be private or of this machine."""
    jwks_hosts: Annotated[tuple[str, ...], Length(0, 16)] = ()
    """Other hosts that may hold the issuer's keys."""
    clock_skew: str = ""
    """How far the issuer's clock may be off: a duration up to 120s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The part of ``spec`` that concerns AccessPolicies."""

    trust_domain: Annotated[str, TRUST_DOMAIN] = "cluster.local"
    issuers: Annotated[tuple[Issuer, ...], Length(0, 256)] = ()
    policy_composition: Annotated[str, OneOf(("All", "Any"))] = "All"
    unprotected_backends: Annotated[str, OneOf(("Allow", "Deny"))] = "Allow"
    denial_format: Annotated[str, OneOf(("http403", "jsonrpc200"))] = "http403"
    max_request_body: Annotated[int, BODY] = 65536
    strict: bool = False
