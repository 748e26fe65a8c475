"""The keys of an issuer for Envoy, so that its jwt_authn filter verifies what `verify` does and nothing else."""

import json
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.algorithms import ALGORITHMS
from authplane.policy.identity.tokens.base64url import encode_base64url
from authplane.policy.identity.tokens.keys import KeySet, VerificationKey
from authplane.policy.identity.tokens.verify import Demands

_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_UNKNOWN: Final = frozenset({"Ed25519"})
"""Algorithms that Envoy does not know: it has EdDSA for the same keys."""
_RSA: Final = frozenset(each.name for each in ALGORITHMS.values() if each.key_type == "RSA")

Members: TypeAlias = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Withheld:
    """Envoy cannot be given the keys: the tokens of the issuer are the policy server's to judge."""

    why: str
    """Continues a sentence about the issuer."""


def render_jwks(keys: KeySet, demands: Demands) -> str | Withheld:
    """Return a key set with which Envoy verifies the tokens that we do; the same keys make the same text.

    It is withheld if a key that we use is of no use to Envoy, which would then refuse tokens that we take.
    """
    described: set[str] = set()
    for key in keys.keys:
        allowed = key.algorithms & demands.algorithms
        if allowed and key.kid is None:
            # Envoy would take such a key for tokens that name another one.
            return Withheld("has a key without a kid")
        if allowed and allowed <= _UNKNOWN:
            return Withheld("has a key for an algorithm that Envoy does not support")
        described.update(_render({"kid": key.kid, **purpose, **_numbers(key)}) for purpose in _purposes(allowed))
    # Envoy refuses a configuration with an empty set.
    return f'{{"keys":[{",".join(sorted(described))}]}}' if described else Withheld("has no keys")


def _purposes(allowed: frozenset[str]) -> list[Members]:
    """Return the ``alg`` members for each listing of a key; without ``alg``, all algorithms of its type apply.

    For curves that would be too many: Envoy accepts any hash with any curve that is large enough.
    """
    return [{}] if allowed == _RSA else [{"alg": each} for each in sorted(allowed - _UNKNOWN)]


def _render(members: Members) -> str:
    return json.dumps(members, separators=(",", ":"), sort_keys=True)


def _numbers(key: VerificationKey) -> Members:
    """Return a key's numbers in their one spelling, whatever the issuer's was."""
    public = key.material.public_key
    match public:
        case RSAPublicKey():
            pair = public.public_numbers()
            return {"kty": "RSA", "e": _text(pair.e), "n": _text(pair.n)}
        case EllipticCurvePublicKey():
            point, size = public.public_numbers(), (public.key_size + 7) // 8
            curve = _CURVES[public.curve.name]
            return {"kty": "EC", "crv": curve, "x": _text(point.x, size), "y": _text(point.y, size)}
        case Ed25519PublicKey():
            return {"kty": "OKP", "crv": "Ed25519", "x": encode_base64url(public.public_bytes_raw()).decode()}
        case _:
            raise TypeError(f"no key of an issuer is a {type(public).__name__}")


def _text(number: int, size: int = 0) -> str:
    return encode_base64url(number.to_bytes(size or (number.bit_length() + 7) // 8, "big")).decode()
