"""Verifies tokens: from text to claims that an issuer has signed."""

from dataclasses import field
from typing import Final, Protocol

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.algorithms import ALGORITHMS, DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.check_claims import Times, decisive_time, fault_in_claims
from authplane.policy.identity.tokens.compact_tokens import Compact, TokenLimits, parse_compact
from authplane.policy.identity.tokens.frozen_json import freeze
from authplane.policy.identity.tokens.keys import KeySet, VerificationKey
from authplane.policy.identity.tokens.token_outcome import Outcome, Reason, Refused, Verified

DEFAULT_TYPES: Final = frozenset({"", "jwt", "at+jwt"})
"""ID tokens, access tokens of RFC 9068, and those that do not say. Others, such as security events and logout tokens,
are signed by the same keys and mean something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The requirements for an issuer's tokens besides a signature."""

    algorithms: frozenset[str] = DEFAULT_ALGORITHMS
    types: frozenset[str] = DEFAULT_TYPES
    """The values of ``typ``, in lower case; an empty one means no ``typ``."""
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        unknown = self.algorithms - DEFAULT_ALGORITHMS
        if unknown or not self.algorithms:
            raise ValueError(
                f"unsupported algorithms: {', '.join(sorted(unknown))}; supported: {', '.join(sorted(ALGORITHMS))}"
            )


JWT_SVIDS: Final = Demands(
    algorithms=frozenset(name for name in DEFAULT_ALGORITHMS if name[:2] in {"RS", "PS", "ES"}),
    types=frozenset({"", "jwt", "jose"}),
)
"""The requirements of the JWT-SVID specification for the header (sections 2.1 and 2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """An issuer with its keys. Verified tokens are remembered only while it is the issuer's current one."""

    issuer: str
    """The issuer's address."""
    demands: Demands = field(default_factory=Demands)
    keys: KeySet


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """An issuer whose keys were never had, or are too old."""

    issuer: str


class Keyring(Protocol):
    """The issuers that are configured, and the keys they have now. Neither method waits for anything."""

    def keys_of(self, name: str) -> Trust | NotReady | None:
        """Return the configured issuer that calls itself ``name`` in ``iss``; None if there is none."""

    def wanted(self, issuer: str, kid: str) -> None:
        """Say that a token needs a key which the issuer at this address may have by now.

        It is a new key, or one that took the place of another under the same name; an empty ``kid`` is no name.
        """


def examine(token: str, keyring: Keyring, now: float, limits: TokenLimits) -> tuple[Outcome, Trust | None]:
    """Verify a token, and tell with which issuer's keys that was done, if it came so far."""
    compact = parse_compact(token, DEFAULT_ALGORITHMS, limits)
    if not isinstance(compact, Compact):
        return Refused(reason=compact), None
    issuer = compact.claims.get("iss")
    trust = keyring.keys_of(issuer) if isinstance(issuer, str) else None
    if trust is None:
        return Refused(reason=Reason.ISSUER, named=issuer if isinstance(issuer, str) else ""), None
    if isinstance(trust, NotReady):
        return Refused(reason=Reason.ISSUER_NOT_READY, issuer=trust.issuer), None
    refused = _refused(compact, trust, now)
    return (_verified(compact) if refused is None else refused), trust


def _refused(compact: Compact, trust: Trust, now: float) -> Refused | None:
    """Go through everything that an issuer's token must satisfy, the cheap things first."""
    header, demands = compact.header, trust.demands
    if header.algorithm not in demands.algorithms:
        return Refused(reason=Reason.ALGORITHM, issuer=trust.issuer)
    if header.type not in demands.types:
        return Refused(reason=Reason.TYPE, issuer=trust.issuer)
    fault = fault_in_claims(compact.claims, demands.times, now)
    if fault is not None:
        time = decisive_time(compact.claims, demands.times, fault)
        skew = 0.0 if time is None else demands.times.skew
        return Refused(reason=fault, issuer=trust.issuer, time=time, skew=skew)
    keys = _candidates(compact, trust)
    if isinstance(keys, Refused):
        return keys
    if any(_signed_by(key, compact) for key in keys):
        return None
    return Refused(reason=Reason.SIGNATURE, issuer=trust.issuer, kid=compact.header.kid or "")


def _candidates(compact: Compact, trust: Trust) -> tuple[VerificationKey, ...] | Refused:
    fitting, kid = trust.keys.fit_for(compact.header.algorithm), compact.header.kid
    if kid is None:
        return fitting if len(fitting) == 1 else Refused(reason=Reason.KEY_AMBIGUOUS, issuer=trust.issuer)
    named = tuple(key for key in fitting if key.kid == kid)
    if named:
        return named
    if trust.keys.named(kid):
        # Asking the issuer again would bring nothing: the key is there and is not for this algorithm.
        return Refused(reason=Reason.ALGORITHM, issuer=trust.issuer)
    return Refused(reason=Reason.KEY, issuer=trust.issuer, kid=kid)


def _signed_by(key: VerificationKey, compact: Compact) -> bool:
    try:
        return ALGORITHMS[compact.header.algorithm].verify(compact.signed, compact.signature, key.material)
    except ValueError:
        # Numbers that no signature can have.
        return False


def _verified(compact: Compact) -> Verified:
    claims = compact.claims
    return Verified(
        issuer=claims["iss"],
        subject=claims.get("sub", ""),
        claims=freeze(dict(claims)),
        expires_at=claims["exp"],
        id=claims.get("jti", ""),
    )
