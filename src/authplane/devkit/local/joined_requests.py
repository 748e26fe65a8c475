"""Joins what is known of a request: the decisions of policies, and Envoy's line of the access log."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from authplane.core.values import dataclass
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Verdict

PATIENCE: Final = 2.0
"""Seconds after which a decision is shown while its request goes on: streams may stay open for hours."""
_MOST: Final = 1000
"""Maximum number of decisions that wait for the end of their request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRequest:
    """A request that has ended, or that is still open."""

    record: Mapping[str, Any] | None
    """The line of the access log; None while the request is open."""
    request: Request | None = None
    """What the policy server got; None if it got no check."""
    verdict: Verdict | None = None


class JoinedRequests:
    """Waits with each decision for the end of its request. Both have the header ``x-request-id``."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _Decided] = OrderedDict()

    def decided(self, request: Request, verdict: Verdict, now: float) -> Iterator[JoinedRequest]:
        """Take a decision; yields what can no longer wait."""
        ids = request.values("x-request-id")
        if not ids:
            yield JoinedRequest(record=None, request=request, verdict=verdict)
            return
        # A repeated check replaces the first one.
        self._waiting.pop(ids[0], None)
        self._waiting[ids[0]] = _Decided(request=request, verdict=verdict, since=now)
        if len(self._waiting) > _MOST:
            _, oldest = self._waiting.popitem(last=False)
            if not oldest.shown:
                yield oldest.joined(None)

    def ended(self, record: Mapping[str, Any]) -> JoinedRequest:
        """Take a line of the access log."""
        found = self._waiting.pop(str(record.get("request_id")), None)
        return JoinedRequest(record=record) if found is None else found.joined(record)

    def due(self, now: float) -> Iterator[JoinedRequest]:
        """Yield decisions whose requests are open for a while, once each."""
        for each in self._waiting.values():
            if not each.shown and now - each.since >= PATIENCE:
                each.shown = True
                yield each.joined(None)


@dataclass(slots=True, kw_only=True)
class _Decided:
    request: Request
    verdict: Verdict
    since: float
    shown: bool = False

    def joined(self, record: Mapping[str, Any] | None) -> JoinedRequest:
        return JoinedRequest(record=record, request=self.request, verdict=self.verdict)
