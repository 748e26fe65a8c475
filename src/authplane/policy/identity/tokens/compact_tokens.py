"""Parses signed tokens in compact form, before anything in them is trusted."""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from authplane.core.strict_json import Json, Limits, NotStrict, parse_json
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.base64url import decode_base64url
from authplane.policy.identity.tokens.token_outcome import Reason

LONGEST_KID: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """The maximum size of a token, in characters, and the limits of its JSON."""

    token: int = 16_384
    header: int = 6_144
    signature: int = 1_366
    """Enough for RSA with 8192 bits."""
    depth: int = 32
    members: int = 10_000


TOKEN_LIMITS: Final = TokenLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header and claims of a token before its signature is verified.

    Its keys and addresses of keys (``jwk``, ``jku``, ``x5u``, ``x5c``) are not even read.
    """

    algorithm: str
    kid: str | None
    type: str
    """In lower case and without ``application/``; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """The parts of a token."""

    header: Header
    claims: Mapping[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    """What the signature covers."""
    signature: bytes = field(repr=False)


Unusable: TypeAlias = Reason


def parse_compact(token: str, algorithms: Collection[str], limits: TokenLimits = TOKEN_LIMITS) -> Compact | Unusable:
    """Parse a token, or say why it is rejected; no token raises an exception.

    A token whose algorithm is not in ``algorithms`` is rejected before its claims are read.
    """
    parts = _split(token, limits)
    if isinstance(parts, Reason):
        return parts
    head, body, proof = parts
    header = _parse_header(_parse_object(head, limits), algorithms)
    if not isinstance(header, Header):
        return header
    claims, signature = _parse_object(body, limits), decode_base64url(proof)
    if claims is None or not signature:
        return Reason.MALFORMED
    return Compact(header=header, claims=claims, signed=head + b"." + body, signature=signature)


def unverified_issuer(token: str, algorithms: Collection[str], limits: TokenLimits = TOKEN_LIMITS) -> str:
    """Return the ``iss`` of a token, only to choose the issuer that verifies it; empty if there is none."""
    compact = parse_compact(token, algorithms, limits)
    issuer = compact.claims.get("iss") if isinstance(compact, Compact) else None
    return issuer if isinstance(issuer, str) else ""


def _split(token: str, limits: TokenLimits) -> tuple[bytes, bytes, bytes] | Unusable:
    """Return the three segments; nothing is decoded before all sizes are known."""
    if len(token) > limits.token:
        return Reason.TOO_LARGE
    try:
        parts = token.encode("ascii").split(b".")
    except UnicodeEncodeError:
        return Reason.MALFORMED
    if len(parts) != 3:
        return Reason.MALFORMED
    head, body, proof = parts
    if len(head) > limits.header or len(proof) > limits.signature:
        return Reason.TOO_LARGE
    return head, body, proof


def _parse_object(segment: bytes, limits: TokenLimits) -> dict[str, Any] | None:
    text = decode_base64url(segment)
    if text is None:
        return None
    value: Json | NotStrict = parse_json(
        text, Limits(most_bytes=limits.token, depth=limits.depth, members=limits.members)
    )
    return value if isinstance(value, dict) else None


def _parse_header(found: dict[str, Any] | None, algorithms: Collection[str]) -> Header | Unusable:
    if found is None:
        return Reason.MALFORMED
    algorithm, kid = found.get("alg"), found.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        return Reason.ALGORITHM
    # RFC 7515, 4.1.11: a receiver must understand the extensions in "crit", and we understand none. "b64" without it
    # would be read in two ways.
    if "crit" in found or "b64" in found:
        return Reason.CRITICAL
    if "kid" in found and not (isinstance(kid, str) and 0 < len(kid) <= LONGEST_KID):
        return Reason.MALFORMED
    kind, content = _media_type(found.get("typ", "")), _media_type(found.get("cty", ""))
    if kind is None or content is None or content == "jwt":
        return Reason.TYPE
    return Header(algorithm=algorithm, kid=kid, type=kind)


def _media_type(value: object) -> str | None:
    """Return a media type in its short form; None if it is no text."""
    return value.lower().removeprefix("application/") if isinstance(value, str) else None
