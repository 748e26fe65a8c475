"""Statuses in a cluster: written when they say something new, never otherwise, and without harm to those of others."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.statuses import APPLIED, applied, condition, stored_object

from authplane.controlplane.status.kubernetes.status_writes import (
    APPLY,
    MERGE,
    StatusWrite,
    awaits_proxies,
    build_write,
)
from authplane.controlplane.status.resource_status import (
    AncestorStatus,
    Condition,
    ListenerStatus,
    ParentStatus,
    Status,
    SubCondition,
)
from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import CONTROLLER

NOW, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
T0, T1 = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
PROXY = Ref("HTTPProxy", "shop", "web")
VALID = condition("Valid")
ERROR = SubCondition(type="SpecError", reason="FieldInvalid", message="spec.x: no. Remove it.")


def proxy(*conditions: Condition, generation: int = 1) -> Status:
    return Status(ref=PROXY, api_version="projectcontour.io/v1", generation=generation, conditions=conditions)


def policy(*names: str, status: str = "True", generation: int = 1, programmed: str = "True") -> Status:
    found = (condition("Accepted", status), condition("Programmed", programmed))
    return Status(
        ref=Ref("AccessPolicy", "shop", "p"),
        api_version="agentic.networking.x-k8s.io/v1alpha1",
        generation=generation,
        conditions=(),
        ancestors=tuple(AncestorStatus(ref=reference(name), conditions=found) for name in names),
    )


def reference(name: str) -> tuple[tuple[str, str | int], ...]:
    return (("group", "g"), ("kind", "Backend"), ("namespace", "shop"), ("name", name))


def entry(name: str, controller: str = "x.example/controller", **more: Any) -> dict[str, Any]:
    return {"ancestorRef": {"name": name}, "controllerName": controller, "conditions": [], **more}


def write(status: Status, stored: Mapping[str, Any], now: datetime = NOW, **more: Any) -> StatusWrite | None:
    return build_write(status, stored_object(status.ref, stored, status.generation), now, **more)


def after(status: Status, stored: Mapping[str, Any], now: datetime = NOW, **more: Any) -> dict[str, Any]:
    """Return the status that the API server has when we have written ours."""
    made = write(status, stored, now, **more)
    return dict(stored) if made is None else applied(stored, made)


# --- Kinds whose lists have keys


WORDS = st.sampled_from(["a", "b"])
STATES = st.sampled_from(["True", "False", "Unknown"])
TIMES = st.sampled_from([T0, "2026-01-02T00:00:00Z"])
OURS = st.lists(
    st.builds(
        Condition,
        type=st.sampled_from(["Programmed", "UpToDate"]),
        status=STATES,
        reason=WORDS,
        message=WORDS,
        errors=st.sampled_from([(), (ERROR,)]),
    ),
    max_size=2,
    unique_by=lambda each: each.type,
).map(lambda more: proxy(VALID, *more))
CONDITIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Valid", "Programmed", "UpToDate", "Theirs", "Others"]),
        "status": STATES,
        "reason": WORDS,
        "message": WORDS,
        "lastTransitionTime": TIMES,
    }
)
LISTED = st.lists(CONDITIONS, max_size=5, unique_by=lambda each: str(each["type"]))
STORED = st.fixed_dictionaries(
    {},
    optional={
        "conditions": LISTED,
        "currentStatus": WORDS,
        "loadBalancer": st.just({"ingress": [{"ip": "192.0.2.1"}]}),
    },
)


def by_type(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in status.get("conditions", ())}


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, status=OURS)
def test_what_was_just_written_is_not_written_again(stored: dict[str, Any], status: Status) -> None:
    before = deepcopy(stored)
    written = after(status, stored)
    assert stored == before
    assert write(status, written, LATER) is None


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, status=OURS)
def test_an_apply_names_only_our_own_conditions_and_fields(stored: dict[str, Any], status: Status) -> None:
    made = write(status, stored)
    if made is None:
        return
    sent = json.loads(made.body)["status"]
    assert by_type(sent).keys() == {each.type for each in status.conditions}
    assert sent.keys() == {"conditions", "currentStatus", "description"}
    assert made.content_type == APPLY


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, status=OURS)
def test_a_condition_that_did_not_change_keeps_its_time(stored: dict[str, Any], status: Status) -> None:
    before, found = by_type(stored), by_type(after(status, stored, LATER))
    for each in status.conditions:
        old = before.get(each.type)
        kept = old is not None and old["status"] == each.status
        assert found[each.type]["lastTransitionTime"] == (old["lastTransitionTime"] if old and kept else T1)
        assert found[each.type]["observedGeneration"] == 1


@pytest.mark.requirement("ES-32")
@pytest.mark.parametrize("generation", [1, 3])
def test_the_status_of_another_generation_is_not_written(generation: int) -> None:
    assert build_write(proxy(VALID, generation=2), stored_object(PROXY, {}, generation), NOW) is None


def test_a_write_has_the_version_of_the_object_as_precondition() -> None:
    for status, kind in ((proxy(VALID), APPLY), (policy("a"), MERGE)):
        made = write(status, {})
        assert made is not None
        assert json.loads(made.body)["metadata"].items() >= {"resourceVersion": "7", "uid": "u-7"}.items()
        assert (made.content_type, made.query["fieldManager"]) == (kind, "authplane")


def test_a_condition_that_is_gone_is_withdrawn() -> None:
    outdated = condition("UpToDate", "False")
    written = after(proxy(VALID, outdated), {})
    assert by_type(after(proxy(VALID), written)).keys() == {"Valid"}


def test_only_kinds_with_lists_of_errors_get_them() -> None:
    wrong = replace(condition("Valid", "False"), errors=(ERROR,))
    assert by_type(after(proxy(wrong), {}))["Valid"]["errors"] == [
        {"type": "SpecError", "status": "True", "reason": "FieldInvalid", "message": "spec.x: no. Remove it."}
    ]
    backend = Status(ref=Ref("Backend", "shop", "b"), api_version="v", generation=1, conditions=(wrong,))
    found = by_type(after(backend, {}))["Valid"]
    assert ("errors" in found, found["message"]) == (False, "spec.x: no. Remove it.")


def test_listeners_are_known_by_their_names() -> None:
    def gateway(*names: str, status: str = "True") -> Status:
        found = (condition("Accepted", status),)
        listeners = tuple(ListenerStatus(name=name, attached_routes=1, conditions=found) for name in names)
        ref = Ref("Gateway", "shop", "edge")
        return Status(ref=ref, api_version="v", generation=1, conditions=found, listeners=listeners)

    first = after(gateway("a", "b"), {})
    assert write(gateway("b", "a"), first, LATER) is None
    second = after(gateway("b", "c"), first, LATER)
    times = {each["name"]: each["conditions"][0]["lastTransitionTime"] for each in second["listeners"]}
    assert times == {"b": T0, "c": T1}
    made = write(gateway("b", "c", status="False"), second)
    assert made is not None
    assert [each.part for each in made.transitions] == ["", "listener b", "listener c"]


# --- Kinds whose lists are atomic


@pytest.mark.requirement("R71", "R72")
def test_entries_of_others_stay_and_our_own_are_added_updated_and_removed() -> None:
    foreign = entry("a", odd={"b": [1]})
    stored = after(policy("a", "b"), {"ancestors": [foreign]})
    assert [each["ancestorRef"]["name"] for each in stored["ancestors"]] == ["a", "a", "b"]
    merged = after(policy("b", "c", generation=2), stored, LATER)
    assert merged["ancestors"][0] == foreign
    assert [each["ancestorRef"]["name"] for each in merged["ancestors"]] == ["a", "b", "c"]
    assert [each["conditions"][0]["lastTransitionTime"] for each in merged["ancestors"][1:]] == [T0, T1]
    assert [each["conditions"][0]["observedGeneration"] for each in merged["ancestors"][1:]] == [2, 2]
    assert write(policy("b", "c", generation=2), merged) is None


@pytest.mark.requirement("R77", "R70")
def test_an_entry_is_whole() -> None:
    [found] = after(policy("a"), {})["ancestors"]
    assert found.keys() == {"ancestorRef", "controllerName", "conditions"}
    assert (found["ancestorRef"], found["controllerName"]) == (dict(reference("a")), CONTROLLER)
    assert found["conditions"][0] == {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "Accepted is True.",
        "observedGeneration": 1,
        "lastTransitionTime": T0,
    }


@pytest.mark.requirement("R73")
def test_a_policy_that_concerns_nothing_has_no_entries() -> None:
    assert after(policy(), after(policy("a"), {})) == {"ancestors": []}
    assert write(policy(), {}) is None


@pytest.mark.requirement("R74")
def test_a_full_list_gets_no_entry_more() -> None:
    stored = [entry(f"n{index}") for index in range(16)]
    assert write(policy("shop"), {"ancestors": stored}) is None
    assert len(after(policy("shop", "cafe"), {"ancestors": stored[:15]})["ancestors"]) == 16


@pytest.mark.requirement("R75")
def test_the_time_of_an_entry_changes_only_with_its_status() -> None:
    stored = after(policy("a"), {})
    flipped = after(policy("a", status="False"), stored, LATER)
    assert [each["lastTransitionTime"] for each in flipped["ancestors"][0]["conditions"]] == [T1, T0]
    same = after(policy("a", generation=2), stored, LATER)
    assert [each["lastTransitionTime"] for each in same["ancestors"][0]["conditions"]] == [T0, T0]


def test_an_entry_with_defaults_left_out_is_known_as_ours() -> None:
    ref = (("group", "gateway.networking.k8s.io"), ("kind", "Gateway"), ("namespace", "shop"), ("name", "edge"))
    status = replace(policy(), ancestors=(AncestorStatus(ref=ref, conditions=(condition("Accepted"),)),))
    short = {"name": "edge", "namespace": "shop"}
    stored = {"ancestors": [entry("", CONTROLLER, ancestorRef=short)]}
    [found] = after(status, stored)["ancestors"]
    assert found["ancestorRef"] == short


def test_conditions_of_others_in_our_entry_stay_in_place() -> None:
    stored = after(policy("a"), {})
    theirs = {"type": "Theirs", "status": "True", "reason": "x", "message": "", "lastTransitionTime": T0}
    stored["ancestors"][0]["conditions"].insert(0, theirs)
    assert write(policy("a"), stored) is None
    found = after(policy("a", status="False"), stored)["ancestors"][0]["conditions"]
    assert [each["type"] for each in found] == ["Theirs", "Accepted", "Programmed"]
    assert found[0] == theirs


ENTRIES = st.builds(entry, st.sampled_from("abcdefgh"), st.sampled_from(["x.example/a", "y.example/b", CONTROLLER]))


@pytest.mark.requirement("R70", "R71")
@given(stored=st.lists(ENTRIES, max_size=16), names=st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_there_are_never_more_than_sixteen_and_others_keep_theirs_in_order(
    stored: list[dict[str, Any]], names: list[str]
) -> None:
    found = after(policy(*names), {"ancestors": stored})["ancestors"]
    assert len(found) <= 16
    foreign = [each for each in stored if each["controllerName"] != CONTROLLER]
    assert [each for each in found if each["controllerName"] != CONTROLLER] == foreign
    mine = [each for each in found if each["controllerName"] == CONTROLLER]
    assert {each["ancestorRef"]["name"] for each in mine} <= set(names)
    assert all(1 <= len(each["conditions"]) <= 8 for each in mine)


def test_a_route_keeps_its_parents_of_other_controllers() -> None:
    other: dict[str, Any] = {"parentRef": {"name": "theirs"}, "controllerName": "x.example/c", "conditions": []}
    ours = ParentStatus(ref=(("name", "edge"),), conditions=(condition("Accepted"),))
    route = Status(
        ref=Ref("HTTPRoute", "shop", "r"),
        api_version="v",
        generation=1,
        conditions=(condition("UpToDate", "False"),),
        parents=(ours,),
    )
    found = after(route, {"parents": [other]})
    assert found.keys() == {"parents"}
    assert found["parents"][0] == other
    assert [each["type"] for each in found["parents"][1]["conditions"]] == ["Accepted", "UpToDate"]


def test_a_route_that_cannot_be_read_says_so_at_our_gateways_alone() -> None:
    wrong = replace(condition("Valid", "False"), errors=(ERROR,))
    route = Status(ref=Ref("HTTPRoute", "shop", "r"), api_version="v", generation=1, conditions=(wrong,))
    stored = replace(stored_object(route.ref, {}), references=({"name": "edge"}, {"name": "theirs"}))
    made = build_write(route, stored, NOW, known={Ref("Gateway", "shop", "edge")})
    assert made is not None
    [found] = json.loads(made.body)["status"]["parents"]
    [accepted] = found["conditions"]
    assert (found["parentRef"], accepted["type"], accepted["status"], accepted["reason"], accepted["message"]) == (
        {"name": "edge"},
        "Accepted",
        "False",
        "Invalid",
        "spec.x: no. Remove it.",
    )


# --- Proxies that have not answered


@pytest.mark.parametrize(
    "form", [lambda state: proxy(VALID, condition("Programmed", state)), lambda state: policy("a", programmed=state)]
)
def test_while_proxies_may_still_answer_the_stored_condition_stays(form: Any) -> None:
    stored = after(form("True"), {})
    assert awaits_proxies(form("Unknown"))
    assert not awaits_proxies(form("True"))
    assert write(form("Unknown"), stored, LATER, patient=True) is None
    assert write(form("Unknown"), stored, LATER) is not None
    assert write(form("False"), stored, LATER, patient=True) is not None
    newer = after(replace(form("Unknown"), generation=2), stored, LATER, patient=True)
    assert '"observedGeneration": 1' in json.dumps(newer)
    assert '"observedGeneration": 2' in json.dumps(newer)


def test_an_object_whose_condition_is_unknown_gets_it_at_once() -> None:
    unknown = proxy(VALID, condition("Programmed", "Unknown"))
    newer = replace(unknown, generation=2)
    assert '"observedGeneration": 1' not in json.dumps(after(newer, after(unknown, {}), LATER, patient=True))


def test_an_object_without_the_condition_gets_it_at_once() -> None:
    assert by_type(after(proxy(VALID, condition("Programmed", "Unknown")), {}, patient=True)).keys() == {
        "Valid",
        "Programmed",
    }


def test_the_model_of_an_apply_keeps_what_others_own() -> None:
    """The API server does the same, see `tests/e2e`; this is about the model that the tests here use."""
    theirs = {"type": "Theirs", "status": "True"}
    assert {"Valid", "Programmed", "UpToDate", "Accepted"} >= APPLIED
    assert after(proxy(VALID), {"conditions": [theirs], "loadBalancer": {}}) == {
        "conditions": [theirs, by_type(after(proxy(VALID), {}))["Valid"]],
        "loadBalancer": {},
        "currentStatus": "valid",
        "description": "Valid is True.",
    }
