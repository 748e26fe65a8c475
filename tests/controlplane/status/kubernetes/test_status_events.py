"""Events are for transitions that a person must see, and the same transition is the same Event."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from tests.support.statuses import stored_object

from authplane.controlplane.status.kubernetes.status_events import build_events, series_patch
from authplane.controlplane.status.kubernetes.status_writes import Transition
from authplane.core.names import Ref

NOW = datetime(2026, 1, 1, 12, 30, 15, 42, tzinfo=UTC)
STORED = stored_object(Ref("HTTPProxy", "shop", "web"), {})


class Case(NamedTuple):
    type: str
    before: str
    after: str
    want: str
    reason: str = "Because"


CASES = {
    "a new object that is fine": Case("Valid", "", "True", ""),
    "a new object with an error": Case("Valid", "", "False", "Warning"),
    "an error appears": Case("Valid", "True", "False", "Warning"),
    "an error is gone": Case("Valid", "False", "True", "Normal"),
    "a reference is gone": Case("ResolvedRefs", "True", "False", "Warning"),
    "a conflict is bad when it is true": Case("Conflicted", "False", "True", "Warning"),
    "no conflict from the start": Case("Conflicted", "", "False", ""),
    "proxies are connected": Case("Programmed", "Unknown", "True", ""),
    "proxies are gone": Case("Programmed", "True", "Unknown", ""),
    "a proxy rejects it": Case("Programmed", "True", "False", "Warning", "Rejected"),
    "not sent on account of another condition": Case("Programmed", "True", "False", "", "NotValid"),
    "unknown is no recovery": Case("Accepted", "False", "Unknown", ""),
    "placement is no matter of good and bad": Case("Enforced", "True", "False", ""),
}


def transition(case: Case, part: str = "") -> Transition:
    before = {"type": case.type, "status": case.before, "reason": "Before"} if case.before else {}
    after = {"type": case.type, "status": case.after, "reason": case.reason, "message": "Words. Do this."}
    return Transition(part=part, type=case.type, before=before, after=after)


def made(found: Transition, instance: str = "pod-a") -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in build_events([found], STORED, NOW, instance)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_which_transitions_are_for_people(case: Case) -> None:
    assert [each["type"] for each in made(transition(case))] == ([case.want] if case.want else [])


def test_an_event_is_whole() -> None:
    [found] = made(transition(CASES["an error appears"], "listener web"))
    name = found["metadata"].pop("name")
    assert name.startswith("web.")
    assert found == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2026-01-01T12:30:15.000042Z",
        "reportingController": "authplane.dev/controller",
        "reportingInstance": "pod-a",
        "action": "StatusChanged",
        "reason": "Because",
        "type": "Warning",
        "note": "listener web: Valid is False. Words. Do this.",
        "regarding": {
            "apiVersion": "example.org/v1",
            "kind": "HTTPProxy",
            "name": "web",
            "namespace": "shop",
            "uid": "u-7",
            "resourceVersion": "7",
        },
    }


def test_the_same_transition_has_the_same_name_whichever_replica_sees_it() -> None:
    first, again, other = (
        next(build_events([transition(CASES[case])], STORED, NOW, instance)).name
        for case, instance in (
            ("an error appears", "pod-a"),
            ("an error appears", "pod-b"),
            ("an error is gone", "pod-a"),
        )
    )
    assert first == again
    assert first != other


def test_repetitions_are_counted() -> None:
    once = json.loads(series_patch({}, NOW))
    assert once == {"series": {"count": 2, "lastObservedTime": "2026-01-01T12:30:15.000042Z"}}
    assert json.loads(series_patch(once, NOW))["series"]["count"] == 3


def test_a_long_note_is_cut_to_the_bytes_that_the_api_server_takes() -> None:
    case = CASES["an error appears"]
    after = {"type": "Valid", "status": "False", "reason": "x", "message": "ü" * 2000}
    [found] = made(Transition(part="", type=case.type, before={}, after=after))
    assert len(found["note"].encode()) <= 1024
    assert found["note"].endswith("ü…")
