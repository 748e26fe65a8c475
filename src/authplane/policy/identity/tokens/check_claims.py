"""Checks the claims of a token against time, audiences and scopes."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.token_outcome import Reason

LONGEST_SKEW: Final = 120.0
DEFAULT_SKEW: Final = 30.0
LATEST_TIME: Final = 253_402_300_799
"""The last second of the year 9999, beyond which calendars and timestamps end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How the times in a token are judged."""

    skew: float = DEFAULT_SKEW
    """Seconds by which the issuer's clock may differ from ours; 0 to 120."""
    longest_age: float | None = None
    """Seconds since ``iat``; None means any, and that a token needs no ``iat``."""

    def __post_init__(self) -> None:
        if not 0 <= self.skew <= LONGEST_SKEW:
            raise ValueError(f"the clock skew must be 0 to {LONGEST_SKEW:g} seconds")


def fault_in_claims(claims: Mapping[str, Any], times: Times, now: float) -> Reason | None:
    """Say why claims are not valid at ``now``; None if they are.

    ``exp`` is required. ``nbf``, ``iat``, ``sub`` and ``jti`` are optional, but must have the right type.
    """
    if not all(isinstance(claims.get(name, ""), str) for name in ("sub", "jti")):
        return Reason.CLAIMS
    expires, begins, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None or begins is None or issued is None or "exp" not in claims:
        return Reason.CLAIMS
    if now >= expires + times.skew:
        return Reason.EXPIRED
    latest = now + times.skew
    if begins > latest or issued > latest:
        return Reason.NOT_YET
    if times.longest_age is not None and issued + times.longest_age + times.skew < now:
        return Reason.TOO_OLD
    return None


def decisive_time(claims: Mapping[str, Any], times: Times, fault: Reason) -> float | None:
    """Return the time that makes claims invalid, without the skew; None if the fault is another one."""
    match fault:
        case Reason.EXPIRED:
            return _time(claims, "exp")
        case Reason.NOT_YET:
            return max(_time(claims, "nbf") or 0, _time(claims, "iat") or 0)
        case Reason.TOO_OLD:
            return (_time(claims, "iat") or 0) + (times.longest_age or 0)
        case _:
            return None


def audience_fits(claims: Mapping[str, Any], audiences: Collection[str]) -> bool:
    """Tell whether a token has one of these audiences; without audiences, every token fits.

    ``aud`` is a text or a list of texts. If it is anything else, the token has no audience.
    """
    if not audiences:
        return True
    return any(each in audiences for each in audiences_of(claims))


def audiences_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the audiences of a token; none if ``aud`` is neither a text nor a list of texts."""
    return _texts(claims.get("aud"))


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: ``scope`` and ``scp``, each a text with blanks between them, or a list."""
    return frozenset().union(*(_scopes(claims.get(name)) for name in ("scope", "scp")))


def scopes_fit(claims: Mapping[str, Any], scopes: Collection[str]) -> bool:
    """Tell whether a token has at least one of these scopes; if there are none, any token will do."""
    return not scopes or not scopes_of(claims).isdisjoint(scopes)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time; a missing one is long ago. None if the value is no number, or after the year 9999.

    RFC 7519, section 2: a NumericDate counts seconds. A later one is a mistake (milliseconds), or means a token that
    never expires.
    """
    value = claims.get(name, 0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if -LATEST_TIME <= value <= LATEST_TIME else None


def _texts(value: object) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple; empty if it is neither."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return ()


def _scopes(value: object) -> frozenset[str]:
    found = value.split(" ") if isinstance(value, str) else _texts(value)
    return frozenset(found) - {""}
