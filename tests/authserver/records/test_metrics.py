"""The metrics as Prometheus reads them."""

import threading
from collections.abc import Iterable
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from authplane.authserver.backends.htpasswd.verified_credentials import CacheCounts
from authplane.authserver.records.decision_record import Conclusion
from authplane.authserver.records.runtime.metrics import Metrics

LIMIT: Final = 5.0


def _samples(metrics: Metrics, *names: str) -> dict[str, float]:
    """Return the samples of some metrics, each named with the values of its labels."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        " ".join((sample.name, *(value for _, value in sorted(sample.labels.items())))): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith(names)
    }


def _buckets(counts: Iterable[int]) -> dict[str, float]:
    bounds = ("5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1",
              "0.25", "1.0", "+Inf")  # fmt: skip
    return {f"authplane_check_seconds_bucket a {bound}": count for bound, count in zip(bounds, counts, strict=True)}


def test_checks_are_counted_by_backend_and_decision() -> None:
    metrics = Metrics()
    for conclusion, backend in ((Conclusion.ALLOW, "a"), (Conclusion.ALLOW, "a"), (Conclusion.FAILED, "b")):
        metrics.checks(backend).began()
        metrics.checks(backend).ended(conclusion, 0.001)
    nothing = {f"authplane_checks_total {each} {end}": 0 for each in "ab" for end in Conclusion}
    assert _samples(metrics, "authplane_checks_total") == nothing | {
        "authplane_checks_total a allow": 2,
        "authplane_checks_total b failed": 1,
    }


def test_latencies_are_in_the_bucket_of_the_next_higher_bound() -> None:
    metrics = Metrics()
    checks = metrics.checks("a")
    for seconds in (0, 0.00005, 0.00006, 0.001, 5):
        checks.began()
        checks.ended(Conclusion.ALLOW, seconds)
    checks.began()
    checks.ended(Conclusion.DENY, 0.2)
    assert _samples(metrics, "authplane_check_seconds") == {
        **_buckets((2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 6)),
        "authplane_check_seconds_count a": 6,
        "authplane_check_seconds_sum a": pytest.approx(5.20111),
    }


def test_checks_that_pass_at_once_are_counted_like_others_however_many_there_are() -> None:
    metrics = Metrics()
    checks = metrics.checks("a")
    for index in range(1000):
        checks.passed(Conclusion.DENY if index % 4 else Conclusion.ALLOW, 0.0004 if index % 2 else 2)
    want = {f"authplane_checks_total a {end}": 0 for end in Conclusion} | _buckets((0, 0, 0, *[500] * 10, 1000))
    for _ in range(2):
        assert _samples(metrics, "authplane_check") == want | {
            "authplane_checks_total a allow": 250,
            "authplane_checks_total a deny": 750,
            "authplane_check_seconds_count a": 1000,
            "authplane_check_seconds_sum a": pytest.approx(1000.2),
            "authplane_checks_in_flight a": 0,
            "authplane_checks_shed_total a": 0,
        }


def test_checks_in_flight_and_shed_are_told_apart() -> None:
    metrics = Metrics()
    checks = metrics.checks("a")
    for _ in range(3):
        checks.began()
    checks.ended(Conclusion.UNAVAILABLE, 1)
    checks.shed()
    assert _samples(metrics, "authplane_checks_in_flight", "authplane_checks_shed") == {
        "authplane_checks_in_flight a": 2,
        "authplane_checks_shed_total a": 1,
    }


def test_caches_reloads_and_lost_lines_are_counted() -> None:
    metrics = Metrics()
    counts, reloads = CacheCounts(), metrics.reloads("staff")
    metrics.cache("staff", counts)
    counts.hits, counts.misses, counts.evictions = 2, 1, 5
    for ok in (True, False, False, False):
        reloads.reloaded(ok=ok)
    metrics.lines_lost(7)
    assert _samples(metrics, "authplane_cache", "authplane_reloads", "authplane_log_lines_lost") == {
        "authplane_cache_lookups_total staff hit": 2,
        "authplane_cache_lookups_total staff miss": 1,
        "authplane_cache_evictions_total staff": 5,
        "authplane_reloads_total ok staff": 1,
        "authplane_reloads_total failed staff": 3,
        "authplane_log_lines_lost_total": 7,
    }


def test_each_process_part_has_its_own_metrics() -> None:
    one, other = Metrics(), Metrics()
    one.lines_lost(1)
    assert _samples(other, "authplane_log_lines_lost_total") == {"authplane_log_lines_lost_total": 0}


def test_many_threads_lose_no_count() -> None:
    metrics = Metrics()
    checks = metrics.checks("a")

    def count() -> None:
        for _ in range(5000):
            checks.began()
            checks.ended(Conclusion.ALLOW, 0)
            checks.passed(Conclusion.DENY, 0)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.text()
    for thread in threads:
        thread.join(LIMIT)
    found = _samples(metrics, "authplane_checks_in_flight", "authplane_check_seconds_count")
    assert found == {"authplane_checks_in_flight a": 0, "authplane_check_seconds_count a": 40_000}
