"""Statuses as they are stored: written when they say something new, and never otherwise."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.controlplane.status.resource_status import OUR_CONDITIONS
from authplane.controlplane.status.status_json import merged_status, needs_write

WORDS = st.sampled_from(["a", "b"])
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
STATES = st.sampled_from(["True", "False", "Unknown"])


def conditions(types: list[str], generation: st.SearchStrategy[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {
            "type": st.sampled_from(types),
            "status": STATES,
            "reason": WORDS,
            "message": WORDS,
            "observedGeneration": generation,
            "lastTransitionTime": TIMES,
        },
        optional={"errors": st.just([{"type": "SpecError", "status": "True", "reason": "x", "message": "y"}])},
    )
    return st.lists(one, max_size=5, unique_by=lambda condition: str(condition["type"]))


@st.composite
def ours(draw: st.DrawFn) -> dict[str, Any]:
    generation = draw(st.integers(1, 3))
    found = draw(conditions(sorted(OUR_CONDITIONS), st.just(generation)).filter(bool))
    return {"conditions": found, "currentStatus": draw(WORDS), "description": draw(WORDS)}


STORED = st.fixed_dictionaries(
    {},
    optional={
        "conditions": conditions([*sorted(OUR_CONDITIONS), "Theirs", "Others"], st.integers(1, 3)),
        "currentStatus": WORDS,
        "description": WORDS,
        "loadBalancer": st.just({"ingress": [{"ip": "192.0.2.1"}]}),
    },
)


def of(status: dict[str, Any], *, mine: bool) -> list[dict[str, Any]]:
    return [each for each in status.get("conditions", []) if (each["type"] in OUR_CONDITIONS) == mine]


def newest(status: dict[str, Any]) -> int:
    return max((condition["observedGeneration"] for condition in of(status, mine=True)), default=0)


def timeless(status: dict[str, Any]) -> dict[str, Any]:
    copy = deepcopy(status)
    for condition in copy.get("conditions", []):
        condition.pop("lastTransitionTime", None)
    copy["conditions"] = sorted(copy.get("conditions", []), key=lambda condition: str(condition["type"]))
    return copy


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours())
def test_what_was_just_written_is_not_written_again(stored: dict[str, Any], new: dict[str, Any]) -> None:
    assert not needs_write(merged_status(stored, new), new)


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours(), later=TIMES)
def test_a_later_time_alone_is_no_reason_to_write(stored: dict[str, Any], new: dict[str, Any], later: str) -> None:
    written = merged_status(stored, new)
    again = deepcopy(new)
    for condition in again["conditions"]:
        condition["lastTransitionTime"] = later
    assert not needs_write(written, again)
    assert merged_status(written, again) == written


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours())
def test_the_status_of_a_newer_generation_is_left_alone(stored: dict[str, Any], new: dict[str, Any]) -> None:
    if newest(stored) > newest(new):
        assert not needs_write(stored, new)


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours())
def test_whatever_else_differs_is_written(stored: dict[str, Any], new: dict[str, Any]) -> None:
    wanted = {**stored, **new, "conditions": [*of(stored, mine=False), *new["conditions"]]}
    if newest(stored) <= newest(new):
        assert needs_write(stored, new) == (timeless(stored) != timeless(wanted))


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours())
def test_what_others_wrote_stays(stored: dict[str, Any], new: dict[str, Any]) -> None:
    merged = merged_status(stored, new)
    assert of(merged, mine=False) == of(stored, mine=False)
    assert {key: merged[key] for key in stored if key not in new} == {
        key: stored[key] for key in stored if key not in new
    }


@pytest.mark.slow
@pytest.mark.requirement("ES-32")
@given(stored=STORED, new=ours())
def test_a_condition_that_did_not_change_keeps_its_time(stored: dict[str, Any], new: dict[str, Any]) -> None:
    before = {condition["type"]: condition for condition in of(stored, mine=True)}
    merged = {condition["type"]: condition for condition in of(merged_status(stored, new), mine=True)}
    assert merged.keys() == {condition["type"] for condition in new["conditions"]}
    for condition in new["conditions"]:
        old = before.get(condition["type"])
        kept = old is not None and old["status"] == condition["status"]
        since = old["lastTransitionTime"] if old is not None and kept else condition["lastTransitionTime"]
        assert merged[condition["type"]] == condition | {"lastTransitionTime": since}


def test_the_arguments_are_not_changed() -> None:
    condition = {
        "type": "Valid",
        "status": "True",
        "reason": "Valid",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    stored, new = {"conditions": [condition]}, {"conditions": [condition | {"observedGeneration": 2}]}
    before = deepcopy((stored, new))
    assert needs_write(stored, new)
    assert (stored, new) == before
