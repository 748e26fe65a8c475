"""Metrics in the text form of Prometheus.

Every label has few values, all of them from our code or configuration: no client can make a new one. Checks are counted
in a table of our own and turned into metrics when somebody asks: with a metric object for each number, counting would
cost every check several times as much.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from authplane.policy.record import Conclusion

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_BOUNDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""In seconds: most checks take less than a millisecond, and a proxy usually waits for 200."""


class CheckMetrics:
    """What is counted of the checks of one backend; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = {conclusion: [0] * (len(_BOUNDS) + 1) for conclusion in Conclusion}
        """By conclusion: how many took up to each bound, and how many took longer than the last."""
        self._seconds = 0.0
        self._in_flight = 0
        self._shed = 0

    def began(self) -> None:
        """Count a check as in flight."""
        with self._lock:
            self._in_flight += 1

    def ended(self, conclusion: Conclusion, seconds: float) -> None:
        """Count a check that had begun and took so many seconds."""
        bucket = bisect_left(_BOUNDS, seconds)
        with self._lock:
            self._in_flight -= 1
            self._ended[conclusion][bucket] += 1
            self._seconds += seconds

    def shed(self) -> None:
        """Count a check that was refused for want of room; it does not begin."""
        with self._lock:
            self._shed += 1

    def describe(self, backend: str, families: "_Families") -> None:
        """Add the numbers of this moment to the metrics."""
        with self._lock:
            ended = {conclusion: tuple(counts) for conclusion, counts in self._ended.items()}
            seconds, in_flight, shed = self._seconds, self._in_flight, self._shed
        for conclusion, counts in ended.items():
            families.checks.add_metric((backend, conclusion.value), sum(counts))
        totals = accumulate(map(sum, zip(*ended.values(), strict=True)))
        bounds = (*map(str, _BOUNDS), "+Inf")
        families.seconds.add_metric((backend,), list(zip(bounds, totals, strict=True)), seconds)
        families.in_flight.add_metric((backend,), in_flight)
        families.shed.add_metric((backend,), shed)


class CacheMetrics:
    """How often a cache knew the answer."""

    def __init__(self, cache: str, lookups: Counter) -> None:
        self._hit = lookups.labels(cache, "hit").inc
        self._miss = lookups.labels(cache, "miss").inc

    def looked_up(self, *, found: bool) -> None:
        """Count a look into the cache."""
        (self._hit if found else self._miss)()


class ReloadMetrics:
    """How often a source was read again, and with what result."""

    def __init__(self, source: str, reloads: Counter) -> None:
        self._done = reloads.labels(source, "ok").inc
        self._failed = reloads.labels(source, "failed").inc

    def reloaded(self, *, ok: bool) -> None:
        """Count a reload; one that failed leaves what was there before."""
        (self._done if ok else self._failed)()


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._checks = _Checks()
        self._registry.register(self._checks)
        self._lookups = self._counter("cache_lookups", "Looks into a cache.", "cache", "result")
        self._reloads = self._counter("reloads", "Sources read again.", "source", "result")
        self._lost = self._counter("log_lines_lost", "Lines missing from the decision log.")

    def checks(self, backend: str) -> CheckMetrics:
        """Return the counters of a backend; its name must come from our code or configuration."""
        return self._checks.backends.setdefault(backend, CheckMetrics())

    def cache(self, name: str) -> CacheMetrics:
        """Return the counters of a cache, which our code names."""
        return CacheMetrics(name, self._lookups)

    def reloads(self, source: str) -> ReloadMetrics:
        """Return the counters of a source, which our code names."""
        return ReloadMetrics(source, self._reloads)

    def lines_lost(self, count: int) -> None:
        """Count lines that are missing from the decision log."""
        self._lost.inc(count)

    def text(self) -> bytes:
        """Write all metrics, in the form of `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"authplane_{name}", about, labels, registry=self._registry)


class _Checks(Collector):
    """Turns the tables of all backends into metrics."""

    def __init__(self) -> None:
        self.backends: dict[str, CheckMetrics] = {}

    def collect(self) -> Iterable[Metric]:
        families = _Families()
        for backend, metrics in sorted(self.backends.items()):
            metrics.describe(backend, families)
        return families


class _Families:
    """The metrics that all backends have, without numbers at first."""

    def __init__(self) -> None:
        self.checks = CounterMetricFamily(
            "authplane_checks", "Checks by how they ended.", labels=("backend", "decision")
        )
        self.seconds = HistogramMetricFamily("authplane_check_seconds", "How long checks took.", labels=("backend",))
        self.in_flight = GaugeMetricFamily(
            "authplane_checks_in_flight", "Checks that have begun and not ended.", labels=("backend",)
        )
        self.shed = CounterMetricFamily(
            "authplane_checks_shed", "Checks refused for want of room.", labels=("backend",)
        )

    def __iter__(self) -> Iterator[Metric]:
        return iter((self.checks, self.seconds, self.in_flight, self.shed))
