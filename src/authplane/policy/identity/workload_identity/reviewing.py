"""The review of a ServiceAccount token by the cluster, and its outcomes."""

from typing import Final, Protocol, TypeAlias

from authplane.core.secret import Secret
from authplane.core.values import dataclass

LONGEST: Final = 60.0
"""Seconds for which a positive review is kept at most; a token's ``exp`` may end it sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewToken:
    """Effect: let the cluster review a token for these audiences."""

    token: Secret[str]
    audiences: tuple[str, ...]
    expires_at: float | None = None
    """The token's ``exp``; None for a legacy token."""
    lifetime: float = LONGEST
    """Seconds for which a positive outcome may be kept."""
    source: str = ""
    """The peer that sent it, as far as it can be identified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """Outcome: the cluster's answer, the ``status`` of a TokenReview."""

    authenticated: bool
    user: str = ""
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewFailed:
    """Outcome: the cluster did not answer, or not in time, or with an error."""

    cause: str
    """A description that does not quote the token."""


ReviewOutcome: TypeAlias = Reviewed | ReviewFailed


class TokenReviewer(Protocol):
    """Sends TokenReviews to the cluster."""

    async def review(self, effect: ReviewToken) -> ReviewOutcome:
        """Ask the cluster, for a few seconds at most; raises nothing that the cluster can cause."""
