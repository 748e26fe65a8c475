"""Cases at random: some of each kind, and what many more of them have found. ``make fuzz`` tries a million."""

import sys
from typing import Final

import pytest
from cel.expr import checked_pb2 as pb
from cel.expr.syntax_pb2 import Expr
from tests.oracles.cases import KINDS
from tests.support.cel.expressions import known

from authplane.cel.calls.call_vocabulary import SERVER_CALLS
from authplane.cel.calls.wire import parse_checked
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.explain.explain_expression import explain
from authplane.cel.syntax.expression_problem import CelProblem, Reason
from authplane.cel.syntax.vocabulary import ACCESS_POLICY
from authplane.core.problems import Problems

SOME: Final = {"expressions": 300, "hostile": 800, "policies": 200, "spoiled": 100}
"""Numbers of each kind; those that are not here have tests of their own."""


@pytest.mark.slow
@pytest.mark.requirement("CEL-3", "CEL-6")
@pytest.mark.parametrize(("kind", "numbers"), SOME.items())
def test_no_case_differs(kind: str, numbers: int) -> None:
    assert {number: said for number in range(numbers) if (said := KINDS[kind].differs(number))} == {}


UNNAMED: Final = ("{null: 1}", "{1.5: 1}", '[{b"a": 1}]', '{"a": {[1]: 2}}', "{identity: 1}", "{timestamp(0): 1}")


@pytest.mark.parametrize("text", UNNAMED)
def test_a_result_that_the_engine_has_no_type_for_is_no_bool(text: str) -> None:
    found = compile_expression(text, ACCESS_POLICY)
    said = "The result is not bool. Write an expression that returns bool."
    assert found == (CelProblem(reason=Reason.NOT_BOOL, message=said, line=1, column=1),)


@pytest.mark.requirement("CEL-2")
def test_a_result_that_the_engine_has_no_type_for_is_refused_when_it_is_sent() -> None:
    message = pb.CheckedExpr(expr=Expr(id=1, struct_expr=Expr.CreateStruct()))
    entry = message.expr.struct_expr.entries.add()
    entry.map_key.const_expr.double_value = 1.5
    entry.value.const_expr.bool_value = True
    message.type_map[1].primitive = pb.Type.BOOL
    problems = Problems()
    assert parse_checked(message, SERVER_CALLS, problems) is None
    assert [str(each) for each in problems] == [
        "expr: 1:1 of {1.5: true}: The result is not bool. Write an expression that returns bool. [ExpressionNotBool]"
    ]


NULLS: Final = {"a": None, "l": [None, {"b": None}]}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["identity.a", "identity.l[0]", "identity.a == null", "identity.l == [identity.a]"])
def test_values_that_are_null_take_nothing_from_the_interpreter(text: str) -> None:
    """The engine gives out None without counting it: where None can end, the process ends with it."""
    program = compile_expression(text, ACCESS_POLICY)
    assert isinstance(program, Program)
    facts = known({"identity": NULLS})
    spare = [None] * 50_000
    before = sys.getrefcount(None)
    for _ in range(5_000):
        evaluate(program, facts)
    for _ in range(500):
        explain(program, facts, secret=lambda _: False)
    assert sys.getrefcount(None) - before > -400
    assert len(spare) == 50_000
