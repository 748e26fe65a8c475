"""Metrics of issuers."""

from collections.abc import Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from authplane.policy.identity.tokens.issuer import Standing


class Followed(Protocol):
    """Issuers whose keys a program keeps up to date."""

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Number of events by issuer and kind."""

    def standings(self) -> tuple[Standing, ...]:
        """Return the state of each issuer."""


def issuer_metrics(prefix: str, issuers: Followed, own: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return current metrics; ``own`` are labels of the program."""
    labels, values = tuple(own), tuple(own.values())
    events = CounterMetricFamily(
        f"{prefix}_issuer_events",
        "Number of events by issuer, such as fetched keys and failed attempts.",
        labels=(*labels, "issuer", "event"),
    )
    for (issuer, event), count in sorted(issuers.counts.items()):
        events.add_metric((*values, issuer, event), count)
    ready = GaugeMetricFamily(
        f"{prefix}_issuer_ready", "Number of processes with usable keys of the issuer.", labels=(*labels, "issuer")
    )
    age = GaugeMetricFamily(
        f"{prefix}_issuer_keys_age_seconds", "Seconds since the issuer's keys were fetched.", labels=(*labels, "issuer")
    )
    for standing in issuers.standings():
        ready.add_metric((*values, standing.issuer), float(standing.ready))
        if standing.age is not None:
            age.add_metric((*values, standing.issuer), standing.age)
    return events, ready, age
