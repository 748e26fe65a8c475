"""The explanation that a client gets about a token that no rule accepts: when it expired, and its audience.

The token is the client's own, so its times, issuer and audience tell the client nothing new. The issuers of the rules
are public: the protected resource metadata (RFC 9728) lists them. The audiences of the rules are shown only to clients
with a valid token of such an issuer. Which key, signature or algorithm is wrong is in the decision log alone.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from authplane.core.problems import printable
from authplane.core.text import name_some, shorten
from authplane.policy.decide.match_rules import Miss
from authplane.policy.identity.evidence import Token
from authplane.policy.identity.tokens.bearer import EMPTY
from authplane.policy.identity.tokens.check_claims import audiences_of
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.rules.rule_model import Oidc

NOT_VALID: Final = "The token is not valid. Get a new token."

LONGEST_SHOWN: Final = 128
"""Characters that are shown of one issuer, audience, method or tool."""
_MOST: Final = 4
"""Issuers or audiences that are listed."""


def token_fault(miss: Miss, token: Token, sources: Iterable[Oidc]) -> str:
    """Say what is wrong with a token, and what to do; ``sources`` are those of all rules of the policy.

    Empty if the token is not why the sender is unknown.
    """
    match miss:
        case Miss.OTHER_ISSUER if isinstance(token, Verified):
            return _wrong_issuer(token.issuer, sources)
        case Miss.AUDIENCE if isinstance(token, Verified):
            return _wrong_audience(token, sources)
        case Miss.BAD_TOKEN if isinstance(token, Refused):
            return _refused(token, sources)
        case Miss.BAD_TOKEN if token == EMPTY:
            return "The token is empty. Send a token after Bearer."
        case Miss.BAD_TOKEN | Miss.BAD_WORKLOAD:
            return NOT_VALID
        case _:
            return ""


def listed(values: Iterable[str]) -> str:
    """Quote a few values, each cut and escaped."""
    return name_some([f'"{cut(each)}"' for each in values], _MOST)


def cut(value: str) -> str:
    """Return a value as a client may see it: escaped, and not too long."""
    return shorten(printable(value), LONGEST_SHOWN)


def _refused(token: Refused, sources: Iterable[Oidc]) -> str:
    when = time_text(token.time) if token.time is not None else ""
    skew = f"The allowed clock skew is {token.skew:g} s."
    match token.reason:
        case Reason.EXPIRED if when:
            return f"The token expired at {when}. {skew} Get a new token."
        case Reason.NOT_YET if when:
            return f"The token is not valid before {when}. {skew} Check the clocks, or wait."
        case Reason.TOO_OLD if when:
            return f"The token exceeded its maximum age at {when}. {skew} Get a new token."
        case Reason.ISSUER if token.named:
            return _wrong_issuer(token.named, sources)
        case _:
            return NOT_VALID


def time_text(seconds: float) -> str:
    """Write a time as RFC 3339 does, in UTC with whole seconds; empty for one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""


def _wrong_issuer(named: str, sources: Iterable[Oidc]) -> str:
    accepted = sorted({source.issuer.url for source in sources})
    remedy = f"Use a token from {listed(accepted)}." if accepted else "Use a token from another issuer."
    return f"The token is from issuer {listed([named])}, which this server does not accept. {remedy}"


def _wrong_audience(token: Verified, sources: Iterable[Oidc]) -> str:
    wanted = sorted({each for source in sources if token.issuer in source.names for each in source.audiences})
    shown = audiences_of(token.claims)
    said = f"The token is for audience {listed(shown)}" if shown else "The token has no audience"
    return f"{said}. Use a token whose audience is {listed(wanted)}."
