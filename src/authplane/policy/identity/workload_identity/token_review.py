"""Reviews ServiceAccount tokens with the cluster: which reviews to make, to cache and to skip.

Only the cluster knows that an account or a pod is gone. The caller performs `ReviewToken` and returns its outcome;
nothing here waits.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import field
from typing import Final, TypeAlias, assert_never

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.policy.check.throttle import Buckets, Rate
from authplane.policy.identity.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.compact_tokens import Compact, parse_compact
from authplane.policy.identity.tokens.token_cache import token_key
from authplane.policy.identity.workload_identity.breaker import Breaker
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.reviewing import (
    LONGEST,
    Reviewed,
    ReviewFailed,
    ReviewOutcome,
    ReviewToken,
)
from authplane.policy.identity.workload_identity.service_account import account_of_user
from authplane.policy.identity.workload_identity.workload_tokens import Projected

LIFETIME_OF_DENIALS: Final = 10.0
"""Seconds for which a negative review is kept."""
MOST: Final = 10_000
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
PER_SOURCE: Final = Rate(burst=20, per_second=1)
"""How many bad tokens of one peer are reviewed."""
ALL: Final = Rate(burst=200, per_second=100)
"""Limits of the reviews that the cluster gets."""

_Key: TypeAlias = tuple[bytes, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ReviewUnavailable:
    """The token was not reviewed: it must not grant the request, and the client is not at fault."""

    cause: str


Judgement: TypeAlias = Projected | NoIdentity | ReviewUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Whose tokens are reviewed."""

    issuers: frozenset[str]
    """What its tokens have as ``iss``."""
    allow_legacy: bool = False
    """Whether tokens that never expire are reviewed."""


def judge_review(asked: Collection[str], review: Reviewed) -> Projected | NoIdentity:
    """Return what a review proves; a review without any requested audience is from a cluster that ignores them."""
    if not review.authenticated:
        return NoIdentity(Why.REVIEW)
    if set(asked).isdisjoint(review.audiences):
        return NoIdentity(Why.REVIEW_AUDIENCE)
    account = account_of_user(review.user)
    return NoIdentity(Why.SUBJECT) if account is None else Projected(account=account)


@dataclass(slots=True)
class _Kept:
    """Judgements that are valid for a while, the least recently used first."""

    most: int
    entries: OrderedDict[_Key, tuple[Projected | NoIdentity, float, float]] = field(default_factory=OrderedDict)

    def find(self, key: _Key, now: float) -> Projected | NoIdentity | None:
        entry = self.entries.get(key)
        if entry is None:
            return None
        judgement, since, until = entry
        # A clock that was set back must not lengthen anything.
        if not since <= now < until:
            del self.entries[key]
            return None
        self.entries.move_to_end(key)
        return judgement

    def add(self, key: _Key, judgement: Projected | NoIdentity, now: float, until: float) -> None:
        self.entries[key] = (judgement, now, until)
        self.entries.move_to_end(key)
        while len(self.entries) > self.most:
            self.entries.popitem(last=False)


class TokenReviews:
    """Reviews of tokens: recent results, and whether more may be requested.

    Valid and invalid tokens are kept apart, so that a client cannot evict valid ones.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        per_source: Rate = PER_SOURCE,
        overall: Rate = ALL,
        breaker: Breaker | None = None,
        most: int = MOST,
    ) -> None:
        self._issuers = cluster.issuers | {LEGACY_ISSUER} if cluster.allow_legacy else cluster.issuers
        self._allow_legacy = cluster.allow_legacy
        self._good, self._bad = _Kept(most), _Kept(most)
        self._sources, self._overall = Buckets(per_source), Buckets(overall, most=1)
        self._breaker = Breaker() if breaker is None else breaker

    def __len__(self) -> int:
        return len(self._good.entries) + len(self._bad.entries)

    def ask(
        self, token: str, audiences: Collection[str], now: float, source: str = "", lifetime: float = LONGEST
    ) -> Judgement | ReviewToken:
        """Return who a token is for, or the review that is needed first; `answered` takes its outcome.

        A positive outcome is kept for ``lifetime`` seconds, or until the token expires.
        """
        asked = tuple(sorted(set(audiences)))
        if not asked:
            # Without an audience the cluster would vouch for tokens that are meant for itself.
            return NoIdentity(Why.AUDIENCE)
        key = (token_key(token), asked)
        known = self._good.find(key, now) or self._bad.find(key, now)
        if known is not None:
            return known
        expires_at = self._expiry(token, now)
        if isinstance(expires_at, NoIdentity):
            return expires_at
        fault = self._take(source, now)
        if fault is not None:
            return fault
        return ReviewToken(
            token=Secret(token), audiences=asked, expires_at=expires_at, lifetime=min(lifetime, LONGEST), source=source
        )

    def answered(self, effect: ReviewToken, outcome: ReviewOutcome, now: float) -> Judgement:
        """Take the outcome of a review, and say what it proves. A failure proves nothing, and is not kept."""
        match outcome:
            case ReviewFailed(cause=cause):
                self._breaker.failed(now)
                self._put_back(effect.source, now)
                return ReviewUnavailable(cause)
            case Reviewed():
                self._breaker.succeeded()
                judgement = judge_review(effect.audiences, outcome)
                self._keep(effect, judgement, now)
                return judgement
            case _:
                assert_never(outcome)

    def _keep(self, effect: ReviewToken, judgement: Projected | NoIdentity, now: float) -> None:
        key = (token_key(effect.token.reveal()), effect.audiences)
        if isinstance(judgement, NoIdentity):
            self._bad.add(key, judgement, now, _end(now + LIFETIME_OF_DENIALS, effect.expires_at))
            return
        self._put_back(effect.source, now)
        self._good.add(key, judgement, now, _end(now + effect.lifetime, effect.expires_at))

    def _expiry(self, token: str, now: float) -> float | NoIdentity | None:
        """Return when a token ends that the cluster may have made, by its own unverified word."""
        compact = parse_compact(token, DEFAULT_ALGORITHMS)
        claims = compact.claims if isinstance(compact, Compact) else {}
        issuer, begins = claims.get("iss"), claims.get("nbf", 0)
        if not isinstance(issuer, str) or issuer not in self._issuers or not _is_time(begins) or begins > now:
            return NoIdentity(Why.TOKEN)
        if "exp" not in claims:
            return None if self._allow_legacy else NoIdentity(Why.LEGACY)
        expires = claims["exp"]
        return float(expires) if _is_time(expires) and now < expires else NoIdentity(Why.TOKEN)

    def _take(self, source: str, now: float) -> ReviewUnavailable | None:
        """Count a review before it begins, so that many at once cannot exceed a limit; say why there can be none.

        A token that is not reviewed may be good, whatever others from the same source have shown.
        """
        if (source and self._sources.wait(source, now)) or self._overall.wait("", now):
            return ReviewUnavailable("too many token reviews are pending")
        if not self._breaker.admit(now):
            return ReviewUnavailable("token reviews keep failing")
        self._overall.add("", -1, now)
        if source:
            self._sources.add(source, -1, now)
        return None

    def _put_back(self, source: str, now: float) -> None:
        if source:
            self._sources.add(source, 1, now)


def _end(until: float, expires_at: float | None) -> float:
    return until if expires_at is None else min(until, expires_at)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
