"""Metrics of the control plane, in the text form of Prometheus.

Labels have values from our code or configuration; no client can make a new one.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from authplane.controlplane.serving.runtime.control_counts import ControlCounts, ControlView
from authplane.controlplane.status.policy_server_status import Trial
from authplane.runtime.issuers.issuer_metrics import issuer_metrics
from authplane.xds.server.served_types import TypeUrl

_PREFIX: Final = "authplane_control"


class Observed(Protocol):
    """A control plane, as far as metrics go."""

    @property
    def counts(self) -> ControlCounts:
        """The counters."""

    @property
    def view(self) -> ControlView:
        """Return the current state."""


class ControlMetrics(Collector):
    """The metrics of one control plane."""

    def __init__(self, control: Observed) -> None:
        self._control = control

    def text(self) -> bytes:
        """Write all metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of this moment."""
        view = self._control.view
        return (*self._of_generations(), *_of_documents(view), *self._of_proxies(view), *_of_others(view))

    def _of_generations(self) -> Iterable[Metric]:
        counts = self._control.counts
        generations = CounterMetricFamily(
            f"{_PREFIX}_generations",
            "Attempts to build a configuration from the documents, by result.",
            labels=("result",),
        )
        generations.add_metric(("ok",), counts.built)
        generations.add_metric(("failed",), counts.failed)
        pushes = HistogramMetricFamily(
            f"{_PREFIX}_push_seconds",
            "Seconds from a change of a document until the control plane sends it to proxies.",
        )
        pushes.add_metric((), counts.push_buckets, counts.push_seconds)
        written = CounterMetricFamily(f"{_PREFIX}_status_writes", "Statuses written to the API server of a cluster.")
        written.add_metric((), counts.statuses())
        leads = _gauge("leads", "Whether this replica writes statuses (1) or not (0).", float(counts.leads()))
        return generations, pushes, written, leads

    def _of_proxies(self, view: ControlView) -> Iterable[Metric]:
        counts = self._control.counts
        proxies = GaugeMetricFamily(f"{_PREFIX}_proxies", "Connected proxies, by Envoy release.", labels=("release",))
        for release, count in sorted(view.releases.items()):
            proxies.add_metric((release,), count)
        acks = CounterMetricFamily(f"{_PREFIX}_acks", "xDS responses that proxies accepted.", labels=("type",))
        nacks = CounterMetricFamily(f"{_PREFIX}_nacks", "xDS responses that proxies rejected.", labels=("type",))
        for type_url in TypeUrl:
            acks.add_metric((type_url.name.lower(),), counts.acks[type_url])
            nacks.add_metric((type_url.name.lower(),), counts.nacks[type_url])
        rejected = _gauge(
            "rejected_resources", "xDS resources that at least one connected proxy rejects.", view.rejected
        )
        return proxies, acks, nacks, rejected


def _of_documents(view: ControlView) -> Iterable[Metric]:
    return (
        _gauge("documents_with_errors", "Documents with at least one error.", view.faulty_documents),
        _gauge("last_good_resources", "Resources whose last good version is in force.", view.last_good),
        _gauge("changes_waiting", "Files with a pending change that removes protection.", view.waiting),
    )


def _of_others(view: ControlView) -> Iterable[Metric]:
    accepts = GaugeMetricFamily(
        f"{_PREFIX}_policy_server_accepts",
        "Whether the policy server accepts connections from the control plane (1) or not (0).",
        labels=("address",),
    )
    for tried in view.tried:
        if tried.trial is not Trial.NOT_TRIED:
            accepts.add_metric((tried.address,), float(tried.trial is Trial.ACCEPTED))
    return accepts, *(issuer_metrics(_PREFIX, view.issuers, {}) if view.issuers is not None else ())


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", documentation, value=value)
