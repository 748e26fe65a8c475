"""What holds for every expression and all data."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.cel.expressions import known, program
from tests.support.cel.reference import Expr, text_of, value_of

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_lint import lint
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Failed, Holds, HoldsNot
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.explain.explain_expression import Part, Shown, explain
from authplane.cel.syntax.expression_problem import CelProblem
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.vocabulary import ACCESS_POLICY

KEYS: Final = st.sampled_from(["a", "b", "group"])
WORDS: Final = st.sampled_from(["", "a", "ab", "admin", "é", "aé", "𐍈"])
SCALARS: Final = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-2, 2), WORDS)
VALUES: Final = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
IDENTITIES: Final = st.dictionaries(KEYS, VALUES, max_size=3)

PATHS: Final = st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: ("path", *keys))
CONSTANTS: Final = st.one_of(SCALARS, st.lists(SCALARS, max_size=3)).map(lambda value: ("const", value))
LEAVES: Final = PATHS | CONSTANTS
ATOMS: Final = st.one_of(
    st.tuples(st.sampled_from(["==", "!=", "in", "startsWith"]), LEAVES, LEAVES),
    st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: ("has", *keys)),
    PATHS,
    st.booleans().map(lambda value: ("const", value)),
)
EXPRESSIONS: Final = st.recursive(
    ATOMS,
    lambda inner: st.tuples(st.sampled_from(["&&", "||"]), inner, inner) | st.tuples(st.just("!"), inner),
    max_leaves=6,
)

ANYTHING: Final = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=20),
        st.text(st.characters(codec=None, categories=["Cs", "Cc", "L"]), max_size=5),
        st.binary(max_size=5),
        st.sampled_from([2**63, -(2**63) - 1, 10**400, float("nan"), "x" * 40_000, object()]),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS | st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=10,
)

TEXTS: Final = (
    "identity.a == 'admin'",
    "!(identity.a == 'admin')",
    "identity.a != identity.b",
    "identity.a.b.group in identity.group",
    "identity.a",
    "!identity.a",
    "identity.a || identity.b",
    "!(identity.a && identity.b)",
    "identity.a ? true : true",
    "identity.a < identity.b || identity.a >= identity.b",
    "identity.a.exists(x, x == identity.b) || identity.b.all(x, x.a)",
    "identity.a.matches('^a')",
    "size(identity.a) > 0",
    "size(identity) >= 0",
    "identity[identity.a] == 1",
    "identity.a[0] == identity.b",
    "string(identity.a) == 'x' || int(identity.a) != 1",
    "timestamp(identity.a) > timestamp(0)",
    "has(identity.a) && request.mcp.params.a == identity.a",
)
PROGRAMS: Final = {text: program(text) for text in TEXTS}


@pytest.mark.slow
@given(EXPRESSIONS, IDENTITIES)
@settings(max_examples=250, deadline=None)
@example(("||", ("path", "a"), ("const", True)), {"a": "true"})
@example(("!", ("path", "a")), {"a": "true"})
@example(("in", ("path", "a"), ("path", "b")), {"a": 1, "b": {"a": 1}})
def test_the_engine_agrees_with_a_small_evaluator(expr: Expr, identity: dict[str, Any]) -> None:
    compiled = compile_expression.__wrapped__(text_of(expr), ACCESS_POLICY)
    assert isinstance(compiled, Program), (text_of(expr), compiled)
    found = evaluate(compiled, known({"identity": identity}))
    want = value_of(expr, identity)
    if want is True:
        assert found == HOLDS
    elif want is False:
        assert found == HOLDS_NOT
    else:
        assert isinstance(found, Failed)


@pytest.mark.slow
@given(st.sampled_from(TEXTS), st.dictionaries(KEYS, ANYTHING, max_size=3) | ANYTHING, ANYTHING)
@settings(max_examples=150, deadline=None)
def test_no_data_makes_an_evaluation_raise(text: str, identity: object, params: object) -> None:
    facts = known({"identity": identity, "request.mcp.params": params})
    found = evaluate(PROGRAMS[text], facts)
    assert isinstance(found, Holds | HoldsNot | Failed)
    if isinstance(admit(identity), Failed):
        assert isinstance(found, Failed)
    again = explain(PROGRAMS[text], facts, secret=lambda _: True)
    assert again.outcome == found
    assert found != HOLDS or again.root.value == Shown("true")


@pytest.mark.slow
@given(ANYTHING)
@settings(max_examples=150, deadline=None)
def test_what_is_admitted_is_plain(value: object) -> None:
    admitted = admit(value)
    if isinstance(admitted, Admitted):
        assert is_plain(admitted.value)
        assert admit(admitted.value) == admitted


def is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return all(is_plain(each) for each in value)
    return value is None or (type(value) in {bool, float, str} and "\0" not in str(value))


TOKENS: Final = st.sampled_from([
    "identity", "request", ".", "mcp", "tool_name", "a", "has", "(", ")", "[", "]", "{", "}", "==", "&&", "||", "!",
    "'x'", "1", "1.0", "in", "?", ":", "matches", "all", "x", ",", "+", "-", "size", "true", "null", "\n", "\0", "é",
    "\ud800", "//",
])  # fmt: skip


@pytest.mark.slow
@given(st.lists(TOKENS, max_size=14).map("".join) | st.text(max_size=30))
@settings(max_examples=250, deadline=None)
def test_every_text_is_a_program_or_has_problems_inside_of_it(text: str) -> None:
    compiled = compile_expression.__wrapped__(text, ACCESS_POLICY)
    if isinstance(compiled, Program):
        lint(compiled)
        return
    assert compiled
    for each in compiled:
        assert isinstance(each, CelProblem)
        assert 1 <= each.line <= text.count("\n") + 1


@pytest.mark.slow
@given(EXPRESSIONS, IDENTITIES)
@settings(max_examples=150, deadline=None)
def test_an_expression_that_is_written_back_means_the_same(expr: Expr, identity: Mapping[str, object]) -> None:
    first = compile_expression.__wrapped__(text_of(expr), ACCESS_POLICY)
    assert isinstance(first, Program)
    second = compile_expression.__wrapped__(render_text(first.tree), ACCESS_POLICY)
    assert isinstance(second, Program)
    # The text itself may differ: the engine balances long chains of && and ||.
    facts = known({"identity": identity})
    assert evaluate(first, facts) == evaluate(second, facts)


@pytest.mark.slow
@given(EXPRESSIONS, IDENTITIES)
@settings(max_examples=150, deadline=None)
def test_the_value_of_the_whole_is_that_of_its_parts(expr: Expr, identity: Mapping[str, object]) -> None:
    compiled = compile_expression.__wrapped__(text_of(expr), ACCESS_POLICY)
    assert isinstance(compiled, Program)
    found = explain(compiled, known({"identity": identity}), secret=lambda _: False)
    assert (found.outcome == HOLDS) == (found.root.value == Shown("true"))
    assert found.outcome != HOLDS or not found.hints
    assert depth(found.root) <= 40


def depth(part: Part) -> int:
    return 1 + max((depth(each) for each in part.parts), default=0)
