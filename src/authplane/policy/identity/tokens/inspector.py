"""Inspects the tokens of requests: remembers valid ones, and limits the work for invalid ones."""

from collections.abc import Callable, Container
from math import ceil
from typing import Final

from authplane.policy.check.throttle import Buckets, Rate
from authplane.policy.identity.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.compact_tokens import TOKEN_LIMITS, unverified_issuer
from authplane.policy.identity.tokens.token_cache import TokenCache, token_key
from authplane.policy.identity.tokens.token_outcome import Outcome, Reason, Refused
from authplane.policy.identity.tokens.verify import Keyring, examine

PER_SOURCE: Final = Rate(burst=2_000, per_second=200)
"""How many bad tokens are verified for one source: a few hundredths of a core."""
IN_ALL: Final = Rate(burst=10_000, per_second=2_000)
"""How many bad tokens are verified for all sources together: about a quarter of a core."""

_ALL: Final = ""


class TokenInspector:
    """Verifies tokens, remembers the good ones, and bounds the work that bad ones cause.

    The budget limits work only. Beyond it, a new token gets no verdict, neither valid nor invalid. A remembered token
    costs nothing and is always accepted. Valid tokens take nothing from the budget.
    """

    def __init__(
        self,
        keyring: Keyring,
        *,
        cache: TokenCache | None = None,
        per_source: Rate = PER_SOURCE,
        in_all: Rate = IN_ALL,
    ) -> None:
        self._keyring = keyring
        self._sources = Buckets(per_source)
        self._all = Buckets(in_all, most=1)
        self.cache = TokenCache() if cache is None else cache

    def inspect(self, token: str, now: float, shown_by: str | Callable[[], str] = "") -> Outcome:
        """Return what a token proves at ``now``; ``shown_by`` identifies the peer, as far as possible.

        For a remembered token, ``shown_by`` is not evaluated. If the keys of the token's issuer did not sign it, the
        keyring is notified: the issuer may have other keys by now.
        """
        if len(token) > TOKEN_LIMITS.token:
            return Refused(reason=Reason.TOO_LARGE)
        key = token_key(token)
        known = self.cache.find(key, self._keyring, now)
        if known is not None:
            return known
        source = shown_by if isinstance(shown_by, str) else shown_by()
        wait = max(self._all.wait(_ALL, now), self._sources.wait(source, now) if source else 0.0)
        if wait:
            return Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=ceil(wait))
        outcome, trust = examine(token, self._keyring, now, TOKEN_LIMITS)
        if isinstance(outcome, Refused):
            return self._refused(outcome, source, now)
        if trust is not None:
            self.cache.add(key, outcome, trust, now)
        return outcome

    def inspect_of(
        self, issuers: Container[str], token: str, now: float, shown_by: str | Callable[[], str] = ""
    ) -> Outcome | None:
        """Inspect a token whose ``iss`` is one of these issuers; None for any other token that is not remembered.

        A token for another receiver counts against no budget.
        """
        large = len(token) > TOKEN_LIMITS.token
        known = None if large else self.cache.find(token_key(token), self._keyring, now)
        if known is not None:
            return known
        issuer = "" if large else unverified_issuer(token, DEFAULT_ALGORITHMS, TOKEN_LIMITS)
        return self.inspect(token, now, shown_by) if issuer in issuers else None

    def _refused(self, refused: Refused, source: str, now: float) -> Refused:
        if refused.reason in {Reason.KEY, Reason.SIGNATURE}:
            self._keyring.wanted(refused.issuer, refused.kid)
        if refused.reason is not Reason.ISSUER_NOT_READY:
            self._all.add(_ALL, -1, now)
            if source:
                self._sources.add(source, -1, now)
        return refused
