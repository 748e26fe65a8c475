"""The metrics of several processes as those of one."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a sample and its labels."""

_AGE: Final = "_age_seconds"


def join_metrics(texts: Iterable[bytes], *, lasting: bool = False) -> bytes:
    """Add up what processes say, and of ages take the highest.

    With ``lasting`` gauges are left out: they tell nothing once a process has ended.
    """
    families: dict[str, Metric] = {}
    sums: dict[str, dict[_Key, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text.decode()):
            if lasting and family.type == "gauge":
                continue
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            totals = sums.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                before = totals.get(key, 0.0)
                totals[key] = max(before, sample.value) if family.name.endswith(_AGE) else before + sample.value
    for name, totals in sums.items():
        for (sample_name, labels), value in totals.items():
            families[name].add_sample(sample_name, dict(labels), value)
    return metrics_text(families.values())


def metrics_text(metrics: Iterable[Metric]) -> bytes:
    """Write metrics in the form that `join_metrics` reads."""
    registry = CollectorRegistry()
    registry.register(_Made(metrics))
    return generate_latest(registry)


class _Made(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics
