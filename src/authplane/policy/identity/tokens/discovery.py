"""Reads the discovery document of an issuer."""

from typing import Final
from urllib.parse import urlsplit

from authplane.core.problems import printable
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer_url import IssuerUrl, host_of, parse_https_url

LARGEST_DOCUMENT: Final = 1024 * 1024

_LIMITS: Final = Limits(most_bytes=LARGEST_DOCUMENT, depth=16, members=10_000)
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The fields that we read from a discovery document."""

    jwks_uri: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why an answer of an issuer is not used."""

    why: str


def discovery_urls(issuer: str) -> tuple[str, ...]:
    """Return where an issuer's discovery document may be; the first that is there counts.

    First the place of OpenID Connect Discovery, below the issuer's path; then those of RFC 8414, which puts the
    well-known part in front of the path, under its own name and under OpenID's.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = (
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    )
    return tuple(dict.fromkeys(places))


def parse_metadata(data: bytes, issuer: IssuerUrl, jwks_hosts: tuple[str, ...]) -> Metadata | Rejected:
    """Read a discovery document; it must name this issuer, and a permitted host for its keys."""
    value = parse_json(data, _LIMITS)
    if isinstance(value, NotStrict) or not isinstance(value, dict):
        why = value.why if isinstance(value, NotStrict) else "not an object"
        return Rejected(f"the discovery document is invalid: {why}")
    named = value.get("issuer")
    if not isinstance(named, str) or named not in issuer.names():
        return Rejected(f"the discovery document names another issuer: {_shown(named)}")
    jwks_uri = value.get("jwks_uri")
    if not isinstance(jwks_uri, str):
        return Rejected("the discovery document has no jwks_uri")
    fault = _fault_in_place(jwks_uri, issuer.url, jwks_hosts)
    return Rejected(f"jwks_uri {_shown(jwks_uri)}: {fault}") if fault else Metadata(jwks_uri=jwks_uri)


def _fault_in_place(jwks_uri: str, issuer: str, jwks_hosts: tuple[str, ...]) -> str:
    """Say why keys must not be fetched from an address; empty if they may.

    Hosts below the issuer's own belong to it. Names do not show which other hosts do, so those must be configured.
    """
    if issuer.startswith("http://") and jwks_uri.startswith(f"http://{urlsplit(issuer).netloc}/"):
        return ""
    parts = parse_https_url(jwks_uri)
    if isinstance(parts, str):
        return parts
    host, own = parts.hostname or "", host_of(issuer)
    if host == own or host.endswith(f".{own}") or host in jwks_hosts:
        return ""
    return "its host is neither the issuer's host nor listed in jwksHosts"


def _shown(value: object) -> str:
    return printable(shorten(repr(value), _SHOWN))
