"""The keys of an issuer, as JSON Web Key Sets publish them (RFC 7517)."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from authplane.core.problems import printable
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.algorithms import ALGORITHMS
from authplane.policy.identity.tokens.base64url import decode_base64url
from authplane.policy.identity.tokens.compact_tokens import LONGEST_KID

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

LARGEST_KEY_SET: Final = 1024 * 1024
MOST_KEYS: Final = 256

_LIMITS: Final = Limits(most_bytes=LARGEST_KEY_SET, depth=8, members=10_000)
_COORDINATE: Final = {"P-256": 32, "P-384": 48, "P-521": 66}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key and what it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    """Those that fit its type and curve, and its ``alg`` if it has one."""
    thumbprint: str
    """RFC 7638: the same for the same key, whatever its other members are."""
    material: Any = field(repr=False, compare=False)
    """The key as the library of signatures wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A member of a key set that verifies nothing."""

    key: str
    """Its ``kid`` in printable form, or its place in the set."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """All keys of an issuer at one time."""

    keys: tuple[VerificationKey, ...]
    ignored: tuple[Ignored, ...] = field(default=(), compare=False)

    def named(self, kid: str) -> tuple[VerificationKey, ...]:
        """Return the keys of this name; usually one."""
        return tuple(key for key in self.keys if key.kid == kid)

    def fit_for(self, algorithm: str) -> tuple[VerificationKey, ...]:
        """Return the keys that may verify this algorithm."""
        return tuple(key for key in self.keys if algorithm in key.algorithms)

    def labelled(self) -> Mapping[str, frozenset[str]]:
        """Return the thumbprints of all keys by ``kid``; a key without one goes by its thumbprint."""
        found: dict[str, set[str]] = {}
        for key in self.keys:
            found.setdefault(key.kid or key.thumbprint, set()).add(key.thumbprint)
        return {label: frozenset(thumbprints) for label, thumbprints in found.items()}


Described: TypeAlias = dict[str, Any]


def parse_key_set(data: bytes) -> KeySet | NotStrict:
    """Read a key set. Unusable keys are left out, as RFC 7517 requires, and listed with a reason."""
    value = parse_json(data, _LIMITS)
    if isinstance(value, NotStrict):
        return value
    described = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(described, list):
        return NotStrict("not a key set")
    if len(described) > MOST_KEYS:
        return NotStrict(f"more than {MOST_KEYS} keys")
    keys: dict[VerificationKey, None] = {}
    ignored = []
    for place, each in enumerate(described):
        key = _parse_key(each)
        if isinstance(key, VerificationKey):
            keys[key] = None
        else:
            ignored.append(Ignored(key=_label(each, place), why=key))
    # In one order, so that a set that only lists its keys differently is the same.
    return KeySet(keys=tuple(sorted(keys, key=lambda key: (key.kid or "", key.thumbprint))), ignored=tuple(ignored))


def _label(described: object, place: int) -> str:
    kid = described.get("kid") if isinstance(described, dict) else None
    return printable(shorten(kid, _SHOWN)) if isinstance(kid, str) else f"keys[{place}]"


def _parse_key(described: object) -> VerificationKey | str:
    """Return the key, or why it is of no use."""
    if not isinstance(described, dict):
        return "not an object"
    fault = _unfit(described)
    if fault:
        return fault
    algorithms = _algorithms(described)
    if not algorithms:
        return "no supported algorithm fits it"
    material = _material(described)
    if isinstance(material, str):
        return material
    return VerificationKey(
        kid=described.get("kid"), algorithms=algorithms, thumbprint=material.thumbprint(), material=material
    )


def _unfit(described: Described) -> str:
    """Say why a key must not be used for verifying; empty if it may."""
    kid, operations = described.get("kid"), described.get("key_ops")
    if "kid" in described and not (isinstance(kid, str) and 0 < len(kid) <= LONGEST_KID):
        return "its kid is not a string of 1 to 256 characters"
    if described.get("kty") == "oct":
        return "it is a symmetric key"
    if not _PRIVATE.isdisjoint(described):
        return "it contains its private part"
    if "use" in described and described["use"] != "sig":
        return "its use is not sig"
    if "key_ops" in described and not (isinstance(operations, list) and "verify" in operations):
        return "its key_ops do not contain verify"
    return ""


def _algorithms(described: Described) -> frozenset[str]:
    kind, curve = described.get("kty"), described.get("crv", "")
    fitting = frozenset(each.name for each in ALGORITHMS.values() if (each.key_type, each.curve) == (kind, curve))
    if "alg" not in described:
        return fitting
    return fitting & {described["alg"]} if isinstance(described["alg"], str) else frozenset()


def _material(described: Described) -> "RSAKey | ECKey | OKPKey | str":
    """Build the key from its numbers alone; no other member reaches the library."""
    from joserfc.errors import JoseError  # noqa: PLC0415 (as in `Algorithm.verify`)
    from joserfc.jwk import ECKey, OKPKey, RSAKey  # noqa: PLC0415 (as above)

    try:
        match described["kty"]:
            case "RSA":
                fault = _rsa_fault(_number(described, "n"), _number(described, "e"))
                return fault or RSAKey.import_key({name: described[name] for name in ("kty", "n", "e")})
            case "EC":
                fault = _size_fault(described, _COORDINATE[described["crv"]], "x", "y")
                return fault or ECKey.import_key({name: described[name] for name in ("kty", "crv", "x", "y")})
            case _:
                fault = _size_fault(described, 32, "x")
                return fault or OKPKey.import_key({name: described[name] for name in ("kty", "crv", "x")})
    except (JoseError, ValueError):
        return "its numbers are not a valid key"


def _rsa_fault(modulus: int, exponent: int) -> str:
    if not 2048 <= modulus.bit_length() <= 8192:
        return "it is an RSA key of fewer than 2048 or more than 8192 bits"
    if not modulus % 2 or not exponent % 2 or not 3 <= exponent < 2**32:
        return "its numbers are not a valid key"
    return ""


def _size_fault(described: Described, size: int, *names: str) -> str:
    return "" if all(len(_bytes(described, name)) == size for name in names) else "its coordinates have the wrong size"


def _number(described: Described, name: str) -> int:
    return int.from_bytes(_bytes(described, name), "big")


def _bytes(described: Described, name: str) -> bytes:
    text = described.get(name)
    value = decode_base64url(text.encode(errors="replace")) if isinstance(text, str) else None
    return value or b""
