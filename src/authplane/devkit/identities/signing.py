"""Signs tokens for the development issuer, and for claims that a test assumes."""

import json
from collections.abc import Mapping
from typing import Any, Final, Self

from joserfc.jwk import ECKey
from joserfc.jws import JWSRegistry, serialize_compact

from authplane.core.secret import Secret
from authplane.core.values import dataclass

_ALGORITHM: Final = "ES256"
_REGISTRY: Final = JWSRegistry(algorithms=[_ALGORITHM])


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key and what it is called."""

    kid: str
    material: Secret[ECKey]

    @classmethod
    def of(cls, pem: Secret[bytes]) -> Self:
        """Take a key of the curve P-256, PEM; raises `ValueError` if it is none."""
        material = ECKey.import_key(pem.reveal())
        return cls._named(material)

    @classmethod
    def generate(cls) -> Self:
        """Return a new key that is not stored."""
        return cls._named(ECKey.generate_key("P-256"))

    @classmethod
    def _named(cls, material: ECKey) -> Self:
        # The key id marks tokens of this key as development tokens.
        return cls(kid=f"dev-{material.thumbprint()[:16]}", material=Secret(material))

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with these claims."""
        header = {"alg": _ALGORITHM, "kid": self.kid, "typ": "JWT"}
        payload = json.dumps(claims, separators=(",", ":"), allow_nan=False).encode()
        return serialize_compact(header, payload, self.material.reveal(), registry=_REGISTRY)

    def key_set(self) -> bytes:
        """Return the public key as issuers publish it."""
        public = self.material.reveal().as_dict(private=False)
        described = {name: public[name] for name in ("kty", "crv", "x", "y")}
        return json.dumps({"keys": [{**described, "kid": self.kid, "use": "sig", "alg": _ALGORITHM}]}).encode()
