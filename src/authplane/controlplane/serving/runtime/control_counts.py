"""Counters of the control plane."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

from authplane.controlplane.serving.runtime.ads_stream import AdsEvent
from authplane.controlplane.status.policy_server_status import Tried
from authplane.core.values import dataclass
from authplane.runtime.issuers.issuer_metrics import Followed
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.stream_messages import Acked, Nacked

BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""In seconds: a burst of changes alone may last for half a second."""


class ControlCounts:
    """Counters that begin with the program."""

    def __init__(self) -> None:
        self.built = 0
        """Generations that proxies were brought to."""
        self.failed = 0
        """Generations that could not be built, by a fault of ours; the last one stays in force."""
        self.acks: Counter[TypeUrl] = Counter()
        self.nacks: Counter[TypeUrl] = Counter()
        self.push_seconds = 0.0
        """The sum of all times from a change to its push."""
        self.statuses: Callable[[], int] = lambda: 0
        """Tells how many statuses were written to an API server."""
        self.leads: Callable[[], bool] = lambda: False
        """Tells whether this replica writes statuses now."""
        self._pushes = [0] * (len(BOUNDS) + 1)

    def pushed(self, seconds: float) -> None:
        """Count a change that was pushed so many seconds after it was seen."""
        self._pushes[bisect_left(BOUNDS, seconds)] += 1
        self.push_seconds += seconds

    @property
    def push_buckets(self) -> list[tuple[str, float]]:
        """How many pushes took up to each bound."""
        return list(zip((*map(str, BOUNDS), "+Inf"), accumulate(self._pushes), strict=True))

    def heard(self, event: AdsEvent) -> None:
        """Count what a proxy says of a response."""
        if isinstance(event, Acked):
            self.acks[event.type_url] += 1
        elif isinstance(event, Nacked):
            self.nacks[event.type_url] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView:
    """The current values of metrics."""

    faulty_documents: int
    last_good: int
    """Resources of which an earlier version is in force."""
    waiting: int
    """Files with a change that loosens and waits."""
    rejected: int
    """Resources that a connected proxy rejects."""
    releases: Mapping[str, int]
    """Connected clients, by the release of Envoy whose configuration they get."""
    tried: tuple[Tried, ...]
    """The outcomes of the last attempts to connect to the policy server."""
    issuers: Followed | None
    """None before the control plane serves."""
