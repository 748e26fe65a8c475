"""A JWT as whoever sends it needs to know it: the text, and when it expires. Whoever receives it checks the rest."""

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any, Final

from authplane.base.secret import Secret
from authplane.base.strict_json import Limits, NotStrict, parse_json

MOST_BYTES: Final = 1024 * 1024
"""How large the file of a token may be."""

_COMPACT: Final = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_WHITESPACE: Final = b" \t\r\n\v\f"
_LIMITS: Final = Limits(most_bytes=MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Token:
    """A token that can be sent."""

    text: Secret[str]
    expires: float
    """In seconds since 1970."""


@dataclass(frozen=True, slots=True)
class NotToken:
    """Why a text is no token, in words that quote nothing of it."""

    why: str


def parse_token(content: bytes) -> Token | NotToken:
    """Read what a file holds; white space around the token does not count."""
    text = content.strip(_WHITESPACE)
    parts = _COMPACT.fullmatch(text)
    if parts is None:
        return NotToken("it is not three parts of base64url with dots between them")
    claims = _claims(parts[2])
    if isinstance(claims, NotToken):
        return claims
    expires = _expiry(claims)
    return Token(Secret(text.decode("ascii")), expires) if isinstance(expires, float) else expires


def _claims(payload: bytes) -> dict[str, Any] | NotToken:
    decoded = _decoded(payload)
    if decoded is None:
        return NotToken("its payload is not base64url")
    claims = parse_json(decoded, _LIMITS)
    if isinstance(claims, NotStrict):
        return NotToken(f"its payload is refused: {claims.why}")
    return claims if isinstance(claims, dict) else NotToken("its payload is not a JSON object")


def _expiry(claims: dict[str, Any]) -> float | NotToken:
    """Return when a token expires; fractions of a second do not count."""
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or isinstance(expires, bool):
        return NotToken("its payload has no number as exp")
    return float(int(expires)) if expires >= 1 else NotToken("its exp is not after 1970")


def _decoded(text: bytes) -> bytes | None:
    try:
        return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        return None
