"""Makes tokens, good and bad ones, with nothing of the code that verifies them."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW: Final = 1_800_000_000.0
ISSUER: Final = "https://issuer.example"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Sign = Callable[[bytes], bytes]

HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}


@dataclass(frozen=True)
class Signer:
    """A key with its name and the algorithm it signs with."""

    kid: str
    algorithm: str
    key: PrivateKey

    def jwk(self, **extra: object) -> dict[str, Any]:
        """Return the public key as issuers publish it; a member that is None is left out."""
        public = self.key.public_key()
        match public:
            case rsa.RSAPublicKey():
                described = RSAAlgorithm.to_jwk(public, as_dict=True)
            case ec.EllipticCurvePublicKey():
                described = ECAlgorithm.to_jwk(public, as_dict=True)
            case ed25519.Ed25519PublicKey():
                described = OKPAlgorithm.to_jwk(public, as_dict=True)
        described.pop("key_ops", None)
        whole = {**described, "kid": self.kid, "use": "sig", "alg": self.algorithm, **extra}
        return {name: value for name, value in whole.items() if value is not None}

    def sign(self, message: bytes) -> bytes:
        match self.key:
            case rsa.RSAPrivateKey():
                digest = HASHES[self.algorithm[2:]]
                scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
                return self.key.sign(message, scheme if self.algorithm[0] == "P" else padding.PKCS1v15(), digest)
            case ec.EllipticCurvePrivateKey():
                size = (self.key.curve.key_size + 7) // 8
                pair = decode_dss_signature(self.key.sign(message, ec.ECDSA(HASHES[self.algorithm[2:]])))
                return b"".join(number.to_bytes(size, "big") for number in pair)
            case ed25519.Ed25519PrivateKey():
                return self.key.sign(message)

    def header(self, **extra: object) -> dict[str, Any]:
        """Return the header of a token of this key; a member that is None is left out."""
        whole = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **extra}
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, payload: Any = None, header: Any = None) -> str:
        """Sign a token; texts and bytes are taken as they are, whatever they hold."""
        return mint(self.header() if header is None else header, claims() if payload is None else payload, self.sign)


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def signer(algorithm: str = "RS256", kid: str = "k1", number: int = 0) -> Signer:
    """Make a signer, the same one for the same arguments."""
    match algorithm:
        case "ES256":
            return Signer(kid, algorithm, ec.generate_private_key(ec.SECP256R1()))
        case "ES384":
            return Signer(kid, algorithm, ec.generate_private_key(ec.SECP384R1()))
        case "ES512":
            return Signer(kid, algorithm, ec.generate_private_key(ec.SECP521R1()))
        case "EdDSA" | "Ed25519":
            return Signer(kid, algorithm, ed25519.Ed25519PrivateKey.generate())
        case _:
            return Signer(kid, algorithm, rsa_key(number))


def claims(**extra: object) -> dict[str, Any]:
    """Return claims that hold at `NOW`; a member that is None is left out."""
    whole = {"iss": ISSUER, "sub": "alice", "aud": "backend-a", "iat": int(NOW), "exp": int(NOW) + 600, **extra}
    return {name: value for name, value in whole.items() if value is not None}


def mint(header: Any, payload: Any, sign: Sign) -> str:
    signed = f"{segment(header)}.{segment(payload)}"
    return f"{signed}.{segment(sign(signed.encode()))}"


def segment(value: Any) -> str:
    data = value.encode() if isinstance(value, str) else value
    raw = data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def key_set(*described: object) -> bytes:
    return json.dumps({"keys": described}).encode()
