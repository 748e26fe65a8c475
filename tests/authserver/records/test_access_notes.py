"""What is counted of decisions by policies."""

import json
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from prometheus_client.parser import text_string_to_metric_families

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import build_record
from authplane.authserver.records.runtime.access_notes import AccessMetrics, AccessNotes
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.issuer import Standing
from authplane.policy.verdicts.verdict import Grounds, Shadowed, Verdict, Would

REQUEST = Request(method="GET", path="/")
TOOLS = Grounds("AccessPolicy/shop/tools", "reads", "0:InlineTools", reason="granted")
NOBODY = Grounds("AccessPolicy/shop/tools", reason="no rule")


class NoIssuers:
    counts: Mapping[tuple[str, str], int] = MappingProxyType({})

    def standings(self) -> tuple[Standing, ...]:
        return ()


DECISIONS = ("policy", "rule", "entry", "decision")


def shown(
    notes: AccessNotes, name: str = "authplane_policy_decisions_total", labels: tuple[str, ...] = DECISIONS
) -> dict[tuple[str, ...], float]:
    metrics = Metrics()
    metrics.include(AccessMetrics("policy", notes, NoIssuers(), lambda: 1))
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == name
    }


def test_decisions_are_counted_by_policy_rule_entry_and_outcome() -> None:
    notes = AccessNotes()
    told: list[tuple[Decision, Grounds]] = [
        (Allow(), TOOLS),
        (Allow(), TOOLS),
        (Deny(http_status=403, rule=""), NOBODY),
        (Unavailable(cause="nobody knows"), Grounds()),
    ]
    for decision, grounds in told:
        notes.told(REQUEST, Verdict(decision, grounds))
    assert shown(notes) == {
        ("AccessPolicy/shop/tools", "reads", "0:InlineTools", "allow"): 2,
        ("AccessPolicy/shop/tools", "", "", "deny"): 1,
        ("", "", "", "unavailable"): 1,
    }


@pytest.mark.requirement("A06")
def test_what_is_counted_by_name_has_a_limit_beyond_which_nothing_is_lost() -> None:
    notes = AccessNotes()
    for number in range(20_000):
        notes.told(REQUEST, Verdict(Allow(), Grounds(f"AccessPolicy/shop/p{number}")))
    assert len(notes.decided) == 10_001
    assert sum(notes.decided.values()) == 20_000
    assert notes.decided["", "", "", Allow] == 10_000


def shadows(policy: str = "AccessPolicy/shop/new", would: Would = Would.DENY) -> tuple[Shadowed, ...]:
    return (Shadowed(policy, "Backend/shop/shop", would, "reads", "0:CEL", "somebody", "cel_false"),)


def test_what_policies_in_shadow_would_do_is_counted_beside_what_was_decided() -> None:
    notes = AccessNotes()
    for decision in (Allow(), Allow(), Deny(http_status=403, rule="")):
        notes.told(REQUEST, Verdict(decision, TOOLS, shadows=shadows()))
    notes.told(REQUEST, Verdict(Allow(), TOOLS, shadows=shadows(would=Would.UNKNOWN)))
    assert shown(notes, "authplane_shadow_decisions_total", ("policy", "outcome", "decision")) == {
        ("AccessPolicy/shop/new", "deny", "allow"): 2,
        ("AccessPolicy/shop/new", "deny", "deny"): 1,
        ("AccessPolicy/shop/new", "unknown", "allow"): 1,
    }


def test_policies_in_shadow_that_come_and_go_are_counted_together_in_the_end() -> None:
    notes = AccessNotes()
    for number in range(10_000):
        notes.told(REQUEST, Verdict(Allow(), TOOLS, shadows=shadows(f"AccessPolicy/shop/p{number}")))
    assert (len(notes.shadows), sum(notes.shadows.values())) == (9001, 10_000)


def test_the_decision_log_says_what_policies_in_shadow_would_do_and_is_silent_where_there_are_none() -> None:
    notes, made = AccessNotes(), Answer(reply=b"", request=REQUEST, decision=Allow())
    record = build_record(made, backend="policy", now=0.0, seconds=0.0)
    lines = []
    for each in ((), shadows()):
        notes.told(REQUEST, Verdict(Allow(), TOOLS, shadows=each))
        lines.append(json.loads(notes.describe(record, made).line))
    plain, shadowed = lines
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
