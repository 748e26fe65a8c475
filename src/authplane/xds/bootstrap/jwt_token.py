"""A JWT as its sender needs it: the text, and when it expires. The receiver checks the rest."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

from authplane.core.secret import Secret
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.values import dataclass

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
    whole: bool = True
    """Whether the signature has a length that the algorithm allows; if not, its writer may not have finished.

    Such a token is sent nevertheless: gRFC A97 leaves the signature to the receiver.
    """


@dataclass(frozen=True, slots=True)
class NotToken:
    """Why a text is no token, in words that quote nothing of it."""

    why: str


def parse_token(content: bytes) -> Token | NotToken:
    """Read the content of a file; white space around the token is ignored."""
    text = content.strip(_WHITESPACE)
    parts = _COMPACT.fullmatch(text)
    if parts is None:
        return NotToken("it is not three base64url parts joined by dots")
    claims = _claims(parts[2])
    if isinstance(claims, NotToken):
        return claims
    expires = _expiry(claims)
    if isinstance(expires, NotToken):
        return expires
    return Token(Secret(text.decode("ascii")), expires, _is_whole(parts[1], parts[3]))


def _claims(payload: bytes) -> dict[str, Any] | NotToken:
    decoded = _decoded(payload)
    if decoded is None:
        return NotToken("its payload is not base64url")
    claims = parse_json(decoded, _LIMITS)
    if isinstance(claims, NotStrict):
        return NotToken(f"its payload cannot be read: {claims.why}")
    return claims if isinstance(claims, dict) else NotToken("its payload is not a JSON object")


def _expiry(claims: dict[str, Any]) -> float | NotToken:
    """Return when a token expires; fractions of a second do not count."""
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or isinstance(expires, bool):
        return NotToken("its exp is missing or not a number")
    return float(int(expires)) if expires >= 1 else NotToken("its exp is not after 1970")


def _is_whole(header: bytes, signature: bytes) -> bool:
    """Tell whether a signature can be complete."""
    decoded = _decoded(signature)
    # What is cut inside four characters ends with bits that no encoder writes.
    if decoded is None or urlsafe_b64encode(decoded).rstrip(b"=") != signature:
        return False
    fields = parse_json(_decoded(header) or b"", _LIMITS)
    algorithm = fields.get("alg") if isinstance(fields, dict) else None
    if not isinstance(algorithm, str):
        return False
    if algorithm.startswith(("RS", "PS")):
        # RFC 7518 §3.3 and §3.5: as long as the key, of at least 2048 bits. Keys come in steps of 512 bits.
        return len(decoded) >= _SHORTEST_RSA and len(decoded) % _RSA_STEP == 0
    return len(decoded) in _LENGTHS.get(algorithm, (len(decoded),))


_SHORTEST_RSA: Final = 256
_RSA_STEP: Final = 64
_LENGTHS: Final[Mapping[str, tuple[int, ...]]] = {
    "none": (0,),
    # RFC 7518 §3.2: as long as the hash.
    "HS256": (32,), "HS384": (48,), "HS512": (64,),
    # RFC 7518 §3.4 and RFC 8812 §3.2: two numbers as long as the order of the curve.
    "ES256": (64,), "ES256K": (64,), "ES384": (96,), "ES512": (132,),
    # RFC 8032 §5.1.6 and §5.2.6, by the names of RFC 8037 and RFC 9864.
    "EdDSA": (64, 114), "Ed25519": (64,), "Ed448": (114,),
}  # fmt: skip
"""How many bytes a signature has, by algorithm."""


def _decoded(text: bytes) -> bytes | None:
    try:
        return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        return None
