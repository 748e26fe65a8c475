"""Looks at tokens as they come: a few again and again, and now and then many bad ones."""

from collections.abc import Callable, Container
from typing import Final

from authplane.policy.throttle import Buckets, Rate
from authplane.policy.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.tokens.cache import TokenCache, token_key
from authplane.policy.tokens.compact import TOKEN_LIMITS, TokenLimits, unverified_issuer
from authplane.policy.tokens.outcome import Outcome, Reason, Refused
from authplane.policy.tokens.verify import Keyring, examine

PER_SOURCE: Final = Rate(burst=100, per_second=10)
"""How many bad tokens one peer may show."""

_NO_FAILURE: Final = frozenset({Reason.ISSUER_NOT_READY, Reason.TOO_MANY_FAILURES})


class TokenInspector:
    """Verifies tokens, remembers the good ones, and stops looking at those of peers who show too many bad ones."""

    def __init__(
        self,
        keyring: Keyring,
        *,
        cache: TokenCache | None = None,
        per_source: Rate = PER_SOURCE,
        limits: TokenLimits = TOKEN_LIMITS,
    ) -> None:
        self._keyring = keyring
        self._limits = limits
        self._failures = Buckets(per_source)
        self.cache = TokenCache() if cache is None else cache

    def inspect(self, token: str, now: float, shown_by: str | Callable[[], str] = "") -> Outcome:
        """Return what a token proves at ``now``; ``shown_by`` is the peer, as far as it can be told apart.

        Who shows a token that is known is not asked. If the token's issuer lacks the key that it names, the keyring
        hears of it.
        """
        large = len(token) > self._limits.token
        key = b"" if large else token_key(token)
        known = self.cache.find(key, self._keyring, now) if key else None
        if known is not None:
            return known
        source = shown_by if isinstance(shown_by, str) else shown_by()
        if large:
            return self._refused(Refused(reason=Reason.TOO_LARGE), source, now)
        if source and self._failures.wait(source, now):
            return Refused(reason=Reason.TOO_MANY_FAILURES)
        outcome, trust = examine(token, self._keyring, now, self._limits)
        if isinstance(outcome, Refused):
            return self._refused(outcome, source, now)
        if trust is not None:
            self.cache.add(key, outcome, trust, now)
        return outcome

    def inspect_of(
        self, issuers: Container[str], token: str, now: float, shown_by: str | Callable[[], str] = ""
    ) -> Outcome | None:
        """Return the same of a token of one of these issuers, by its own word; None for any other that is not known.

        Nobody is to blame for a token that is meant for somebody else.
        """
        large = len(token) > self._limits.token
        known = None if large else self.cache.find(token_key(token), self._keyring, now)
        if known is not None:
            return known
        issuer = "" if large else unverified_issuer(token, DEFAULT_ALGORITHMS, self._limits)
        return self.inspect(token, now, shown_by) if issuer in issuers else None

    def _refused(self, refused: Refused, source: str, now: float) -> Refused:
        if refused.reason is Reason.KEY:
            self._keyring.wanted(refused.issuer, refused.kid)
        if source and refused.reason not in _NO_FAILURE:
            self._failures.add(source, -1, now)
        return refused
