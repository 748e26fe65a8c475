"""What is counted of decisions by policies."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.authservers.log_lines import Lines

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.authserver.records.runtime.verdict_metrics import AccessMetrics, VerdictCounts
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.issuer import Standing
from authplane.policy.verdicts.verdict import Grounds, Shadowed, Verdict, Would

MADE = Answer(reply=b"", request=Request(method="GET", path="/"), decision=Allow(), backend="policy")
TOOLS = Grounds("AccessPolicy/shop/tools", "reads", "0:InlineTools", reason="granted")
NOBODY = Grounds("AccessPolicy/shop/tools", reason="no rule")


class NoIssuers:
    counts: Mapping[tuple[str, str], int] = MappingProxyType({})

    def standings(self) -> tuple[Standing, ...]:
        return ()


DECISIONS = ("policy", "rule", "entry", "decision")


def shown(
    counts: VerdictCounts, name: str = "authplane_policy_decisions_total", labels: tuple[str, ...] = DECISIONS
) -> dict[tuple[str, ...], float]:
    metrics = Metrics()
    metrics.include(AccessMetrics("policy", counts, NoIssuers(), lambda: 1))
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == name
    }


def test_decisions_are_counted_by_policy_rule_entry_and_outcome() -> None:
    counts = VerdictCounts()
    told: list[tuple[Decision, Grounds]] = [
        (Allow(), TOOLS),
        (Allow(), TOOLS),
        (Deny(http_status=403, rule=""), NOBODY),
        (Unavailable(cause="nobody knows"), Grounds()),
    ]
    for decision, grounds in told:
        counts.record(MADE, Verdict(decision, grounds))
    assert shown(counts) == {
        ("AccessPolicy/shop/tools", "reads", "0:InlineTools", "allow"): 2,
        ("AccessPolicy/shop/tools", "", "", "deny"): 1,
        ("", "", "", "unavailable"): 1,
    }


@pytest.mark.requirement("A06")
def test_what_is_counted_by_name_has_a_limit_beyond_which_nothing_is_lost() -> None:
    counts = VerdictCounts()
    for number in range(20_000):
        counts.record(MADE, Verdict(Allow(), Grounds(f"AccessPolicy/shop/p{number}")))
    assert len(counts.decided) == 10_001
    assert sum(counts.decided.values()) == 20_000
    assert counts.decided["", "", "", Allow] == 10_000


def shadows(policy: str = "AccessPolicy/shop/new", would: Would = Would.DENY) -> tuple[Shadowed, ...]:
    return (Shadowed(policy, "Backend/shop/shop", would, "reads", "0:CEL", "somebody", "cel_false"),)


def test_what_policies_in_shadow_would_do_is_counted_beside_what_was_decided() -> None:
    counts = VerdictCounts()
    for decision in (Allow(), Allow(), Deny(http_status=403, rule="")):
        counts.record(MADE, Verdict(decision, TOOLS, shadows=shadows()))
    counts.record(MADE, Verdict(Allow(), TOOLS, shadows=shadows(would=Would.UNKNOWN)))
    assert shown(counts, "authplane_shadow_decisions_total", ("policy", "outcome", "decision")) == {
        ("AccessPolicy/shop/new", "deny", "allow"): 2,
        ("AccessPolicy/shop/new", "deny", "deny"): 1,
        ("AccessPolicy/shop/new", "unknown", "allow"): 1,
    }


def test_policies_in_shadow_that_come_and_go_are_counted_together_in_the_end() -> None:
    counts = VerdictCounts()
    for number in range(10_000):
        counts.record(MADE, Verdict(Allow(), TOOLS, shadows=shadows(f"AccessPolicy/shop/p{number}")))
    assert (len(counts.shadows), sum(counts.shadows.values())) == (9001, 10_000)


def test_the_decision_log_says_what_policies_in_shadow_would_do_and_is_silent_where_there_are_none() -> None:
    lines = Lines()
    observer = Observer("policy", Metrics().checks("policy"), lines=lines, clock=lambda: 0.0)
    for each in ((), shadows()):
        observer.passed(MADE._replace(verdict=Verdict(Allow(), TOOLS, shadows=each)), 0.0)
    plain, shadowed = lines.written
    assert shadowed == plain | {
        "shadow": [
            {
                "policy": "AccessPolicy/shop/new",
                "outcome": "deny",
                "rule": "reads",
                "entry": "0:CEL",
                "reason": "cel_false",
            }
        ]
    }
