"""Stored password hashes: their kinds, their cost, and whether a password matches one.

Plain text is never a hash, and neither is DES: a line that is not recognised must not become a password by itself.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import field
from typing import Final, TypeAlias, assert_never

from authplane.authserver.backends.htpasswd.crypts import SHA256, SHA512, apr1, sha_crypt
from authplane.core.values import dataclass

HIGHEST_COST: Final = 14
"""Of bcrypt; each step doubles the work, and 14 is about a second."""
MOST_ROUNDS: Final = 500_000
"""Of SHA-crypt; about half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bcrypt:
    """``$2a$``, ``$2b$`` and ``$2y$``, which today mean the same."""

    stored: bytes = field(repr=False)
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Apr1:
    """Apache's ``$apr1$``: a thousand rounds of MD5."""

    stored: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sha:
    """``{SHA}``: one SHA-1, without salt."""

    stored: bytes = field(repr=False)
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssha:
    """``{SSHA}``: one SHA-1, with salt."""

    stored: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sha256Crypt:
    """``$5$``."""

    stored: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    rounds: int
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sha512Crypt:
    """``$6$``."""

    stored: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    rounds: int
    digest: bytes = field(repr=False)


PasswordHash: TypeAlias = Bcrypt | Apr1 | Sha | Ssha | Sha256Crypt | Sha512Crypt


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a text is no hash that we verify; the text itself is never repeated, since it may be a password."""

    reason: str
    message: str


def parse_hash(text: str) -> PasswordHash | Unusable:
    """Read a stored hash; what is not recognised, or would take too long to verify, is unusable."""
    if text.startswith("$2"):
        return _parse_bcrypt(text)
    if text.startswith(("$5$", "$6$")):
        return _parse_sha_crypt(text)
    if text.startswith("{"):
        return _parse_sha1(text)
    found = _APR1.fullmatch(text)
    if found is None:
        return _UNKNOWN
    return Apr1(stored=text.encode(), salt=found[1].encode(), digest=found[2].encode())


def weakness(stored: PasswordHash) -> str | None:
    """Say why the password is easy to guess from the hash, or None."""
    match stored:
        case Bcrypt():
            return None
        case Apr1():
            return "the hash uses apr1 (1,000 rounds of MD5), which is cheap to crack"
        case Sha():
            return "the hash uses {SHA} (SHA-1 without salt), which is almost free to crack"
        case Ssha():
            return "the hash uses {SSHA} (salted SHA-1), which is almost free to crack"
        case Sha256Crypt() | Sha512Crypt():
            return "the hash uses SHA-crypt, which is cheap to crack on graphics cards"
        case _:
            assert_never(stored)


def verify(stored: PasswordHash, password: bytes) -> bool:
    """Tell whether ``password`` is the one that was hashed.

    A password that cannot be one (with NUL, or longer than bcrypt reads) takes as long as another.
    """
    possible = b"\0" not in password
    password = password.replace(b"\0", b"?")
    match stored:
        case Bcrypt():
            possible = possible and len(password) <= _BCRYPT_READS
            # Only servers check passwords; others read the file without the extra that has bcrypt.
            import bcrypt  # noqa: PLC0415

            fits = bcrypt.checkpw(password[:_BCRYPT_READS], stored.stored)
        case Apr1(salt=salt, digest=digest):
            fits = hmac.compare_digest(apr1(password, salt).encode(), digest)
        case Sha(digest=digest):
            fits = hmac.compare_digest(_sha1(password), digest)
        case Ssha(salt=salt, digest=digest):
            fits = hmac.compare_digest(_sha1(password + salt), digest)
        case Sha256Crypt(salt=salt, rounds=rounds, digest=digest):
            fits = hmac.compare_digest(sha_crypt(SHA256, password, salt, rounds).encode(), digest)
        case Sha512Crypt(salt=salt, rounds=rounds, digest=digest):
            fits = hmac.compare_digest(sha_crypt(SHA512, password, salt, rounds).encode(), digest)
        case _:
            assert_never(stored)
    return fits and possible


def effort(stored: PasswordHash) -> int:
    """Estimate the work of verifying, in microseconds: good enough to put hashes in order."""
    match stored:
        case Bcrypt(cost=cost):
            return 65 << cost
        case Sha256Crypt(rounds=rounds) | Sha512Crypt(rounds=rounds):
            return rounds
        case Apr1():
            return 1000
        case Sha() | Ssha():
            return 1
        case _:
            assert_never(stored)


def padding(stored: PasswordHash, costliest: PasswordHash) -> tuple[PasswordHash, ...]:
    """Return the hashes to verify besides ``stored`` so that both together take as long as ``costliest``."""
    if isinstance(stored, Bcrypt) and isinstance(costliest, Bcrypt):
        # Each cost is twice the one before: c + (c, c + 1 … m - 1) is m.
        return tuple(_bcrypt_of(cost) for cost in range(stored.cost, costliest.cost))
    return (costliest,) if effort(stored) * 20 < effort(costliest) * 19 else ()


_BCRYPT_READS: Final = 72
_BCRYPT: Final = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
_APR1: Final = re.compile(r"\$apr1\$([!-#%-9;-~]{0,8})\$([./A-Za-z0-9]{22})")
_SHA_CRYPT: Final = re.compile(
    r"\$[56]\$(?:rounds=([1-9][0-9]{0,9})\$)?([!-#%-9;-~]{0,16})\$([./A-Za-z0-9]{43}|[./A-Za-z0-9]{86})"
)
_UNKNOWN: Final = Unusable(
    "HashUnknown",
    "The hash format is not supported. The server never accepts plain text or DES. Run 'htpasswd -B' to create a hash.",
)
_DAMAGED: Final = Unusable(
    "HashDamaged", "The hash is incomplete or has an invalid character. Run 'htpasswd -B' to create a hash."
)


def _parse_bcrypt(text: str) -> PasswordHash | Unusable:
    found = _BCRYPT.fullmatch(text)
    if found is None:
        return _DAMAGED
    cost = int(found[1])
    if not 4 <= cost <= HIGHEST_COST:
        return Unusable(
            "HashCostRefused", f"The bcrypt cost {cost} is not supported. Use a cost from 4 to {HIGHEST_COST}."
        )
    return Bcrypt(stored=text.encode(), cost=cost)


def _parse_sha_crypt(text: str) -> PasswordHash | Unusable:
    found = _SHA_CRYPT.fullmatch(text)
    if found is None or len(found[3]) != (43 if text[1] == "5" else 86):
        return _DAMAGED
    rounds = int(found[1] or 5000)
    if not 1000 <= rounds <= MOST_ROUNDS:
        return Unusable(
            "HashCostRefused", f"{rounds} rounds of SHA-crypt are not supported. Use 1000 to {MOST_ROUNDS}."
        )
    kind = Sha256Crypt if text[1] == "5" else Sha512Crypt
    return kind(stored=text.encode(), salt=found[2].encode(), rounds=rounds, digest=found[3].encode())


def _parse_sha1(text: str) -> PasswordHash | Unusable:
    name, closed, encoded = text.partition("}")
    if not closed or name not in {"{SHA", "{SSHA"}:
        return _UNKNOWN
    try:
        content = binascii.a2b_base64(encoded.encode(), strict_mode=True)
    except ValueError:
        return _DAMAGED
    if base64.b64encode(content).decode() != encoded:
        return _DAMAGED
    digest, salt = content[:20], content[20:]
    if len(digest) != 20 or (name == "{SHA") != (not salt) or len(salt) > 64:
        return _DAMAGED
    return Ssha(stored=text.encode(), digest=digest, salt=salt) if salt else Sha(stored=text.encode(), digest=digest)


def _bcrypt_of(cost: int) -> Bcrypt:
    return Bcrypt(stored=f"$2b${cost:02}${'.' * 53}".encode(), cost=cost)


def _sha1(content: bytes) -> bytes:
    return hashlib.sha1(content, usedforsecurity=False).digest()
