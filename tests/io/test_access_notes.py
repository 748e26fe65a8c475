"""What is counted of decisions by policies."""

from collections.abc import Mapping
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from authplane.io.access_notes import AccessMetrics, AccessNotes
from authplane.io.metrics import Metrics
from authplane.policy.access.verdict import Grounds, Verdict
from authplane.policy.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.request import Request
from authplane.policy.tokens.issuer import Standing

REQUEST = Request(method="GET", path="/")
TOOLS = Grounds("AccessPolicy/shop/tools", "reads", "0:InlineTools", reason="granted")
NOBODY = Grounds("AccessPolicy/shop/tools", reason="no rule")


class NoIssuers:
    counts: Mapping[tuple[str, str], int] = MappingProxyType({})

    def standings(self) -> tuple[Standing, ...]:
        return ()


def shown(notes: AccessNotes) -> dict[tuple[str, ...], float]:
    metrics = Metrics()
    metrics.include(AccessMetrics("policy", notes, NoIssuers(), lambda: 1))
    return {
        tuple(sample.labels[name] for name in ("policy", "rule", "entry", "decision")): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == "authplane_policy_decisions_total"
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


def test_what_is_counted_by_name_has_a_limit_beyond_which_nothing_is_lost() -> None:
    notes = AccessNotes()
    for number in range(20_000):
        notes.told(REQUEST, Verdict(Allow(), Grounds(f"AccessPolicy/shop/p{number}")))
    assert len(notes.decided) == 10_001
    assert sum(notes.decided.values()) == 20_000
    assert notes.decided["", "", "", Allow] == 10_000
