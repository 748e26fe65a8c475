"""Metrics of issuers whose keys a program keeps."""

from collections.abc import Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from authplane.policy.identity.tokens.issuer import Standing


class Followed(Protocol):
    """Issuers whose keys are kept at hand."""

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """How often each kind of event happened with each issuer."""

    def standings(self) -> tuple[Standing, ...]:
        """Return how it stands with each issuer."""


def issuer_metrics(prefix: str, issuers: Followed, own: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return the numbers of this moment; ``own`` are the labels of the program besides the issuer's."""
    labels, values = tuple(own), tuple(own.values())
    events = CounterMetricFamily(
        f"{prefix}_issuer_events", "What happened with issuers.", labels=(*labels, "issuer", "event")
    )
    for (issuer, event), count in sorted(issuers.counts.items()):
        events.add_metric((*values, issuer, event), count)
    ready = GaugeMetricFamily(
        f"{prefix}_issuer_ready", "Processes that have the keys of an issuer.", labels=(*labels, "issuer")
    )
    age = GaugeMetricFamily(f"{prefix}_issuer_keys_age_seconds", "Since keys were fetched.", labels=(*labels, "issuer"))
    for standing in issuers.standings():
        ready.add_metric((*values, standing.issuer), float(standing.ready))
        if standing.age is not None:
            age.add_metric((*values, standing.issuer), standing.age)
    return events, ready, age
