"""Expressions mean what the conformance cases of the CEL specification say, as far as they are allowed here.

docs/reference/cel.md names the cases that come out otherwise. ``conformance.txt`` tells for each part of the
specification how many cases there are that ours says the same of, and why the others cannot be asked.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from tests.conftest import Golden
from tests.oracles.cel_spec import Case, Want, parse_case, spec_cases
from tests.support.cel.expressions import known

from authplane.cel.calls.call_vocabulary import SERVER_CALLS
from authplane.cel.calls.wire import checked_expression, parse_checked
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.syntax.expression_problem import Reason
from authplane.cel.syntax.vocabulary import ACCESS_POLICY, TYPES, Vocabulary
from authplane.core.problems import Problems

pytestmark = pytest.mark.real

DOCS: Final = Path(__file__).parents[2] / "docs" / "reference" / "cel.md"
SUMMARY: Final = Path(__file__).parent / "conformance.txt"
EXTENSIONS: Final = {
    "bindings_ext", "block_ext", "encoders_ext", "macros2", "math_ext", "optionals", "proto2_ext", "string_ext",
}  # fmt: skip
"""Parts of the specification that are no part of the language's definition."""
MESSAGES: Final = re.compile(r"TestAllTypes|google\.protobuf|\b[A-Z]\w*\{|GlobalEnum")
"""What only cases about messages have in their text."""

Said: TypeAlias = Want | frozenset[Reason]
"""What an expression came to, or why it is refused."""


def of_policy(case: Case) -> Said:
    """Ask as an AccessPolicy does."""
    program = compile_expression(case.text, speaking(ACCESS_POLICY, case))
    return refused(program) if isinstance(program, tuple) else evaluated(program, case)


def of_call(case: Case) -> Said:
    """Ask as a matcher does: the expression is checked, sent, and checked again by whoever gets it."""
    vocabulary = speaking(SERVER_CALLS, case)
    message = checked_expression(case.text, vocabulary)
    if isinstance(message, tuple):
        return refused(message)
    problems = Problems()
    program = parse_checked(message.FromString(message.SerializeToString()), vocabulary, problems)
    assert program is not None, (case, list(problems))
    return evaluated(program, case)


def speaking(vocabulary: Vocabulary, case: Case) -> Vocabulary:
    return replace(vocabulary, variables=case.variables or vocabulary.variables, hints=())


def refused(problems: tuple[Any, ...]) -> frozenset[Reason]:
    return frozenset(each.reason for each in problems)


def evaluated(program: Program, case: Case) -> Want:
    outcome = evaluate(program, known(case.facts))
    return Want.TRUE if outcome == HOLDS else Want.FALSE if outcome == HOLDS_NOT else Want.ERROR


CONTEXTS: Final = {"policies": of_policy, "calls": of_call}


@pytest.fixture(scope="module")
def asked(pytestconfig: pytest.Config) -> Mapping[str, list[tuple[Case, Said]]]:
    cases = [case for raw in spec_cases(pytestconfig) if isinstance(case := parse_case(raw), Case)]
    return {context: [(case, ask(case)) for case in cases] for context, ask in CONTEXTS.items()}


def documented() -> set[str]:
    """Return the cases that the documentation says come out otherwise."""
    section = DOCS.read_text(encoding="utf-8").partition("\n## Where it differs from the specification\n")[2]
    return set(re.findall(r"^\| `([\w/]+)` \|", section.partition("\n## ")[0], re.MULTILINE))


@pytest.mark.requirement("CEL-5")
@pytest.mark.requirement("CEL-6")
@pytest.mark.parametrize(("context", "least"), [("policies", 990), ("calls", 700)])
def test_what_is_allowed_means_what_the_specification_says(
    asked: Mapping[str, list[tuple[Case, Said]]], context: str, least: int
) -> None:
    run = [(case, said) for case, said in asked[context] if isinstance(said, Want)]
    assert {case.name for case, said in run if said is not case.want} == documented()
    assert len(run) >= least


@pytest.mark.requirement("CEL-3")
@pytest.mark.parametrize("context", CONTEXTS)
def test_what_is_refused_is_not_offered_or_has_no_value(
    asked: Mapping[str, list[tuple[Case, Said]]], context: str
) -> None:
    unexplained = {
        case.name: said
        for case, said in asked[context]
        if not isinstance(said, Want) and not is_explained(case, said, policy=context == "policies")
    }
    assert unexplained == {}


def is_explained(case: Case, reasons: frozenset[Reason], *, policy: bool) -> bool:
    """Tell whether a case is refused because of what its text has, and not by mistake."""
    if case.want is Want.ERROR or not case.checked:
        return True
    if case.name.split("/")[0] in EXTENSIONS or MESSAGES.search(re.sub(r"//.*|\s", "", case.text)):
        return True
    if "\0" in case.text or "\\U00000000" in case.text or "\\000" in case.text:
        return reasons <= {Reason.SYNTAX, Reason.NOT_ALLOWED}
    if reasons == {Reason.NOT_ALLOWED}:
        return not policy and OUTSIDE.search(case.text) is not None
    return case.name in LARGE and reasons == {Reason.TOO_LARGE}


_TYPE: Final = "|".join(TYPES)
OUTSIDE: Final = re.compile(
    rf"\b(string|type|dyn)\(|\?|\+|\.(all|exists|exists_one|map|filter)\(|== ({_TYPE})$|^\(({_TYPE})\)"
)
"""What expressions about calls may not have: some conversions, the conditional, what joins, loops, types."""
LARGE: Final = {"parse/nest/parens"}


def test_how_much_of_the_specification_is_tested(
    asked: Mapping[str, list[tuple[Case, Said]]], pytestconfig: pytest.Config, golden: Golden
) -> None:
    every = spec_cases(pytestconfig)
    parts: dict[str, Counter[str]] = {raw["section"][0]: Counter() for raw in every}
    for raw in every:
        if isinstance(why := parse_case(raw), str):
            parts[raw["section"][0]][f"about {why}"] += 1
    for context, found in asked.items():
        for case, said in found:
            parts[case.name.split("/")[0]][f"{context}: {summed(said)}"] += 1
    lines = [
        f"{part}: {sum(part == raw['section'][0] for raw in every)} cases\n"
        + "".join(f"  {count:4} {what}\n" for what, count in sorted(counted.items()))
        for part, counted in sorted(parts.items())
    ]
    golden.check(SUMMARY, "".join(lines))


def summed(said: Said) -> str:
    return "evaluated" if isinstance(said, Want) else f"refused as {', '.join(sorted(said))}"
