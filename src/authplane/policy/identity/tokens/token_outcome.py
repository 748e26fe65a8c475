"""The outcomes of inspecting a token."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, TypeAlias

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_outcome import Failed
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.frozen_json import FrozenJson, thaw


class Reason(StrEnum):
    """Why a token proves nothing, for the decision log. A client learns of times and issuers, and of nothing else."""

    TOO_LARGE = "token_too_large"
    MALFORMED = "token_malformed"
    ALGORITHM = "alg_not_allowed"
    TYPE = "typ_not_allowed"
    CRITICAL = "crit_not_supported"
    ISSUER = "issuer_unknown"
    ISSUER_NOT_READY = "issuer_not_ready"
    """The token was not verified: the keys of its issuer are not loaded, or are too old."""
    KEY = "key_unknown"
    """The issuer's keys do not include the one that the token names."""
    KEY_AMBIGUOUS = "key_ambiguous"
    """The token names no key, and more or fewer than one key could be meant."""
    SIGNATURE = "signature_wrong"
    CLAIMS = "claims_malformed"
    EXPIRED = "token_expired"
    NOT_YET = "token_not_yet_valid"
    TOO_OLD = "token_too_old"
    TOO_MANY_FAILURES = "too_many_failures"
    """Invalid tokens took so much work that this one was not verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The issuer has signed these claims, and they are valid now."""

    issuer: str
    """The token's ``iss``, byte for byte."""
    subject: str = ""
    """Empty if the token names none."""
    claims: Mapping[str, FrozenJson] = field(repr=False)
    """All of the payload. Nothing in it can be changed: lists are tuples, objects are read-only."""
    expires_at: float
    """The token's ``exp``, in seconds since 1970."""
    id: str = ""
    """The token's ``jti``: a list of revoked tokens must use it, since one token can have several spellings."""
    _plain: dict[str, Any] | None = field(default=None, init=False, repr=False, compare=False)
    _admitted: Admitted | Failed | None = field(default=None, init=False, repr=False, compare=False)

    def plain_claims(self) -> dict[str, Any]:
        """Return the claims as expressions take them: plain dicts and lists, every number a float.

        Made at first use, and once: each request reads the claims of a remembered token. Callers must not change it.
        """
        plain = self._plain
        if plain is None:
            plain = thaw(self.claims)
            object.__setattr__(self, "_plain", plain)
        return plain

    def admitted_claims(self) -> Admitted | Failed:
        """Return the claims as the engine takes them, or why it must not; made once, like `plain_claims`."""
        admitted = self._admitted
        if admitted is None:
            admitted = admit(self.plain_claims())
            object.__setattr__(self, "_admitted", admitted)
        return admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The token proves nothing."""

    reason: Reason
    issuer: str = ""
    """The address of the issuer that the token is of, if it is one that we know."""
    kid: str = ""
    """The key that the token names, if its issuer does not have it or it did not sign the token."""
    retry_after: int = 0
    """Seconds after which to retry, if the token was not verified."""
    named: str = ""
    """The token's own ``iss``, if no configured issuer has that name. No signature proves it."""
    time: float | None = None
    """When the token expired, becomes valid, or became too old, in seconds since 1970, if that is why."""
    skew: float = 0.0
    """The clock skew that was allowed for, if a time is why."""


Outcome: TypeAlias = Verified | Refused
