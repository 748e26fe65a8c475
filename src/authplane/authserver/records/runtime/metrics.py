"""Metrics in the text form of Prometheus.

Every label has few values, all of them from our code or configuration: no client can make a new one. We count in tables
of our own, which become metrics on each scrape: with a metric object for each number, counting would cost every check
several times as much.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from authplane.authserver.records.decision_record import Conclusion

_BOUNDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""In seconds: most checks take less than a millisecond, and a proxy usually waits for 200."""
_MOST_PASSED: Final = 256


class CacheCounts(Protocol):
    """Counts of cache lookups by result. A protocol, since not every backend is loaded everywhere."""

    @property
    def hits(self) -> int:
        """What was known."""

    @property
    def misses(self) -> int:
        """What was not."""

    @property
    def evictions(self) -> int:
        """What went because there was no more room."""


class CheckMetrics:
    """What is counted of the checks of one backend; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = {conclusion: [0] * (len(_BOUNDS) + 1) for conclusion in Conclusion}
        """By conclusion: how many took up to each bound, and how many took longer than the last."""
        self._seconds = 0.0
        self._in_flight = 0
        self._shed = 0
        self._passed: list[tuple[Conclusion, float]] = []
        """Checks that are not in the table yet: any thread may append; only the owner of the lock removes."""

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

    def passed(self, conclusion: Conclusion, seconds: float) -> None:
        """Count a check that ended as soon as it began: no scrape could have seen it in flight."""
        self._passed.append((conclusion, seconds))
        if len(self._passed) >= _MOST_PASSED:
            with self._lock:
                self._count_passed()

    def _count_passed(self) -> None:
        """Enter into the table what has passed: many at once take a third of the time."""
        passed = self._passed[:]
        # Not all of it: another thread may have appended meanwhile.
        del self._passed[: len(passed)]
        for conclusion, seconds in passed:
            self._ended[conclusion][bisect_left(_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def shed(self) -> None:
        """Count a check that was rejected because too many were pending."""
        with self._lock:
            self._shed += 1

    def describe(self, backend: str, families: "_Families") -> None:
        """Add the numbers of this moment to the metrics."""
        with self._lock:
            self._count_passed()
            ended = {conclusion: tuple(counts) for conclusion, counts in self._ended.items()}
            seconds, in_flight, shed = self._seconds, self._in_flight, self._shed
        for conclusion, counts in ended.items():
            families.checks.add_metric((backend, conclusion.value), sum(counts))
        totals = accumulate(map(sum, zip(*ended.values(), strict=True)))
        bounds = (*map(str, _BOUNDS), "+Inf")
        families.seconds.add_metric((backend,), list(zip(bounds, totals, strict=True)), seconds)
        families.in_flight.add_metric((backend,), in_flight)
        families.shed.add_metric((backend,), shed)


class ReloadMetrics:
    """How often a source was read again, and with what result."""

    def __init__(self) -> None:
        self.results = {"ok": 0, "failed": 0}

    def reloaded(self, *, ok: bool) -> None:
        """Count a reload; one that failed leaves what was there before."""
        self.results["ok" if ok else "failed"] += 1


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._registry = CollectorRegistry()
        self._registry.register(self._tables)

    def checks(self, backend: str) -> CheckMetrics:
        """Return the counters of a backend; its name must come from our code or configuration."""
        return self._tables.checks.setdefault(backend, CheckMetrics())

    def cache(self, backend: str, counts: CacheCounts) -> None:
        """Show what the cache of a backend counts."""
        self._tables.caches[backend] = counts

    def include(self, others: Collector) -> None:
        """Include the metrics of another collector."""
        self._registry.register(others)

    def reloads(self, source: str) -> ReloadMetrics:
        """Return the counters of a source, which our code or configuration names."""
        return self._tables.reloads.setdefault(source, ReloadMetrics())

    def lines_lost(self, count: int) -> None:
        """Count lines that are missing from the decision log; any thread may."""
        with self._tables.lock:
            self._tables.lost += count

    def text(self) -> bytes:
        """Write all metrics, in the text form of Prometheus."""
        return generate_latest(self._registry)


class _Tables(Collector):
    """All counts, which become metrics when a client reads them."""

    def __init__(self) -> None:
        self.checks: dict[str, CheckMetrics] = {}
        self.caches: dict[str, CacheCounts] = {}
        self.reloads: dict[str, ReloadMetrics] = {}
        self.lock = threading.Lock()
        self.lost = 0

    def collect(self) -> Iterable[Metric]:
        families = _Families()
        for backend, metrics in sorted(self.checks.items()):
            metrics.describe(backend, families)
        for backend, counts in sorted(self.caches.items()):
            families.lookups.add_metric((backend, "hit"), counts.hits)
            families.lookups.add_metric((backend, "miss"), counts.misses)
            families.evictions.add_metric((backend,), counts.evictions)
        for source, reloads in sorted(self.reloads.items()):
            for result, count in reloads.results.items():
                families.reloads.add_metric((source, result), count)
        families.lost.add_metric((), self.lost)
        return families


class _Families:
    """All metrics, without numbers at first."""

    def __init__(self) -> None:
        self.checks = CounterMetricFamily("authplane_checks", "Checks by decision.", labels=("backend", "decision"))
        self.seconds = HistogramMetricFamily("authplane_check_seconds", "Duration of checks.", labels=("backend",))
        self.in_flight = GaugeMetricFamily("authplane_checks_in_flight", "Checks in progress.", labels=("backend",))
        self.shed = CounterMetricFamily(
            "authplane_checks_shed", "Checks rejected because too many were pending.", labels=("backend",)
        )
        self.lookups = CounterMetricFamily(
            "authplane_cache_lookups", "Lookups of verified credentials in the cache.", labels=("backend", "result")
        )
        self.evictions = CounterMetricFamily(
            "authplane_cache_evictions", "Verified credentials evicted from the full cache.", labels=("backend",)
        )
        self.reloads = CounterMetricFamily(
            "authplane_reloads", "Reloads of sources that changed.", labels=("source", "result")
        )
        self.lost = CounterMetricFamily("authplane_log_lines_lost", "Lines lost from the decision log.", labels=())

    def __iter__(self) -> Iterator[Metric]:
        return iter(
            (
                self.checks,
                self.seconds,
                self.in_flight,
                self.shed,
                self.lookups,
                self.evictions,
                self.reloads,
                self.lost,
            )
        )
