"""The signature algorithms that can be allowed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A signature algorithm, and the keys it works with."""

    name: str
    key_type: str
    """The ``kty`` of its keys."""
    curve: str = ""
    """The ``crv`` of its keys; empty for RSA."""

    def verify(self, signed: bytes, signature: bytes, key: Any) -> bool:
        """Tell whether a signature is right; raises only what a key that does not fit the algorithm causes."""
        from joserfc.jws import JWSRegistry  # noqa: PLC0415 (who verifies no token need not load it: a tenth of a second)

        # Taken from the table itself: asking for EdDSA by its usual name warns that there is a newer one.
        return JWSRegistry.algorithms[self.name].verify(signed, signature, key)


def _algorithm(name: str, key_type: str, curve: str = "") -> Algorithm:
    return Algorithm(name=name, key_type=key_type, curve=curve)


ALGORITHMS: Final[Mapping[str, Algorithm]] = MappingProxyType(
    {
        each.name: each
        for each in (
            *(_algorithm(name, "RSA") for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
            _algorithm("ES256", "EC", "P-256"),
            _algorithm("ES384", "EC", "P-384"),
            _algorithm("ES512", "EC", "P-521"),
            _algorithm("EdDSA", "OKP", "Ed25519"),
            _algorithm("Ed25519", "OKP", "Ed25519"),
        )
    }
)
"""All supported algorithms. None is symmetric: any reader of a key set could sign with such a key."""

DEFAULT_ALGORITHMS: Final = frozenset(ALGORITHMS)
"""The algorithms that an issuer may sign with unless its configuration lists fewer: all of them.

None of them is weak. A key works only with the algorithms of its own type and curve, and only with the one that it
names, if any. So a shorter list would exclude only well-configured issuers, and JWT-SVIDs may use nine of them.
"""
