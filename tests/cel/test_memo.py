"""Outcomes that are remembered are those that an evaluation would give."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cel.expressions import known

from authplane.cel.check.expression_outcome import Code, Failed, Holds, Outcome
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.evaluate.facts import Lookup
from authplane.cel.evaluate.remembered_results import RememberedExpressions
from authplane.cel.syntax.vocabulary import ACCESS_POLICY

TOOL = 'request.mcp.tool_name == "add"'
GROUP = 'identity.group == "admin"'
EXPRESSIONS = (
    TOOL,
    GROUP,
    f"{TOOL} && {GROUP}",
    f"has(identity.group) && {GROUP}",
    "has(identity.group) && identity.group == null",
    "identity.level > 3.0",
    "identity.level == true",
    '"admin" in identity.groups',
    'request.headers["x-team"] == "red"',
    '!(identity.group == "admin")',
    "!has(request.mcp.params.mode)",
    '!("mode" in request.mcp.params)',
)


def program(text: str) -> Program:
    made = compile_expression(text, ACCESS_POLICY)
    assert isinstance(made, Program), made
    return made


class Counting:
    def __init__(self, outcome: Outcome | None = None) -> None:
        self.calls = 0
        self._outcome = outcome

    def __call__(self, asked: Program, lookup: Lookup) -> Outcome:
        self.calls += 1
        return self._outcome or evaluate(asked, lookup)


VALUES = st.one_of(
    st.sampled_from(["admin", "", "add", "x" * 300, "true", "1"]),
    st.booleans(),
    st.none(),
    st.sampled_from([0.0, 1.0, 4.0]),
    st.lists(st.sampled_from(["admin", "staff"]), max_size=2),
)
IDENTITIES = st.dictionaries(st.sampled_from(["group", "groups", "level"]), VALUES)
FACTS = st.fixed_dictionaries(
    {"identity": IDENTITIES, "request.headers": st.dictionaries(st.just("x-team"), st.sampled_from(["red", "blue"]))},
    optional={
        "request.mcp.tool_name": st.sampled_from(["add", "wipe", "y" * 300]),
        "request.mcp.params": st.dictionaries(st.sampled_from(["mode", "other"]), st.sampled_from(["dry", "wet"])),
    },
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(EXPRESSIONS), FACTS), max_size=30))
def test_what_is_remembered_is_what_an_evaluation_gives(asked: list[tuple[str, dict[str, Any]]]) -> None:
    remembered = RememberedExpressions(evaluate)
    for text, facts in asked:
        assert remembered(program(text), known(facts)) == evaluate(program(text), known(facts))


@pytest.mark.parametrize("text", ["!has(request.mcp.params.mode)", '!("mode" in request.mcp.params)'])
def test_a_map_without_a_member_is_not_taken_for_a_map_that_is_not_there(text: str) -> None:
    remembered = RememberedExpressions(evaluate)
    assert remembered(program(text), known({"request.mcp.params": {}})) == Holds()
    assert remembered(program(text), known({})) == Failed(Code.NO_SUCH_KEY)


@pytest.mark.parametrize("text", [TOOL, f"{TOOL} && {GROUP}"])
def test_the_same_texts_are_evaluated_once(text: str) -> None:
    counting = Counting()
    remembered = RememberedExpressions(counting)
    for extra in ({}, {"sub": "alice"}, {"sub": "bob", "level": 3.0}):
        facts = known({"identity": {"group": "admin"} | extra, "request.mcp.tool_name": "add"})
        assert remembered(program(text), facts) == Holds()
    assert counting.calls == 1
    remembered(program(text), known({"identity": {"group": "admin"}, "request.mcp.tool_name": "wipe"}))
    assert counting.calls == 2


def test_a_failure_is_looked_at_again() -> None:
    counting = Counting(Failed(Code.TRIPPED))
    remembered = RememberedExpressions(counting)
    for _ in range(3):
        assert remembered(program(TOOL), known({"request.mcp.tool_name": "add"})) == Failed(Code.TRIPPED)
    assert counting.calls == 3


def test_many_values_do_not_fill_the_memory() -> None:
    remembered = RememberedExpressions(evaluate)
    for number in range(1000):
        remembered(program(TOOL), known({"request.mcp.tool_name": f"tool-{number}"}))
    [(_, outcomes)] = remembered._known.values()
    assert len(outcomes) <= 256
