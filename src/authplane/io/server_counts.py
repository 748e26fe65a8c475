"""What a policy server counts of its decisions, read from its metrics."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from authplane.io.tallies import By, Tally

METRICS: Final = "/metrics"
"""The page of the server's admin port that `parse_server_counts` reads."""

_DECISIONS: Final = "authplane_policy_decisions_total"


class MetricsInvalidError(Exception):
    """The page is none of metrics; the message continues a sentence about who was asked."""


def parse_server_counts(page: bytes) -> tuple[Tally, ...]:
    """Return what the policies of a server decided; raises `MetricsInvalidError`."""
    try:
        return tuple(_tallies(page.decode()))
    except (ValueError, KeyError, TypeError) as error:
        raise MetricsInvalidError("does not answer with metrics") from error


def _tallies(text: str) -> Iterator[Tally]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _DECISIONS:
                yield _tally(sample.labels, int(sample.value))


def _tally(labels: Mapping[str, str], count: int) -> Tally:
    decision = labels["decision"]
    return Tally(
        by=By.SERVER,
        # Envoy's rules are named without the kind of the policy, and must be found beside ours.
        policy="/".join(labels["policy"].split("/")[-2:]),
        rule=labels["rule"],
        entry=labels["entry"],
        allowed=count if decision == "allow" else 0,
        denied=count if decision == "deny" else 0,
        undecided=count if decision not in {"allow", "deny"} else 0,
    )
