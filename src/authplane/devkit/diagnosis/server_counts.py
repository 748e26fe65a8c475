"""Reads the decision counts of a policy server from its metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from authplane.devkit.diagnosis.tallies import By, Effect, Tally

METRICS: Final = "/metrics"
"""The page of the server's admin port that `parse_server_counts` reads."""

_DECISIONS: Final = "authplane_policy_decisions_total"
_SHADOWS: Final = "authplane_shadow_decisions_total"


class MetricsInvalidError(Exception):
    """The page has no metrics; the message is the rest of a sentence that begins with the address."""


def parse_server_counts(page: bytes) -> tuple[Tally, ...]:
    """Return the decisions of a server's policies; raises `MetricsInvalidError`."""
    try:
        return tuple(_tallies(page.decode()))
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise MetricsInvalidError("did not answer with metrics") from error


def _tallies(text: str) -> Iterator[Tally]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _DECISIONS:
                yield _tally(sample.labels, sample.labels["decision"], int(sample.value))
            elif sample.name == _SHADOWS:
                yield replace(_tally(sample.labels, sample.labels["outcome"], int(sample.value)), effect=Effect.SHADOW)


def _tally(labels: Mapping[str, str], outcome: str, count: int) -> Tally:
    return Tally(
        by=By.SERVER,
        # Envoy's rules are named without the kind of the policy, and must be found beside ours.
        policy="/".join(labels["policy"].split("/")[-2:]),
        rule=labels.get("rule", ""),
        entry=labels.get("entry", ""),
        allowed=count if outcome == "allow" else 0,
        denied=count if outcome == "deny" else 0,
        undecided=count if outcome not in {"allow", "deny"} else 0,
    )
