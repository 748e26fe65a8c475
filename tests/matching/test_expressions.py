"""Expressions in messages of matchers."""

from collections.abc import Callable

import pytest
from tests.support.dataplane.driven_calls import call
from xds.type.matcher.v3 import cel_pb2 as pb
from xds.type.v3 import cel_pb2 as expression_pb

from authplane.cel.calls.call_vocabulary import SERVER_CALLS, compile_call_expression
from authplane.cel.calls.wire import checked_expression
from authplane.cel.check.expression_result import Result
from authplane.cel.check.program import Program
from authplane.core.problems import Problems
from authplane.dataplane.filters.call_attributes import CallAttributes
from authplane.matching.expressions.expression_matcher import ExpressionMatcher, ExtractedText
from authplane.matching.expressions.wire import parse_cel_matcher, parse_extraction


def expression(text: str, result: Result = Result.BOOL) -> expression_pb.CelExpression:
    made = expression_pb.CelExpression()
    checked = checked_expression(text, SERVER_CALLS, result)
    assert not isinstance(checked, tuple), checked
    made.cel_expr_checked.CopyFrom(checked)
    return made


def read(message: pb.CelMatcher | bytes) -> ExpressionMatcher | list[str]:
    problems = Problems()
    data = message if isinstance(message, bytes) else message.SerializeToString()
    found = parse_cel_matcher(data, SERVER_CALLS, problems)
    return [str(each) for each in problems.errors] if found is None else found


def extract(message: expression_pb.CelExtractString | bytes) -> ExtractedText | list[str]:
    problems = Problems()
    data = message if isinstance(message, bytes) else message.SerializeToString()
    found = parse_extraction(data, SERVER_CALLS, problems)
    return [str(each) for each in problems.errors] if found is None else found


@pytest.mark.requirement("CEL-1")
def test_a_checked_expression_is_read_and_its_description_does_not_count() -> None:
    program = compile_call_expression('request.path == "/"', SERVER_CALLS)
    assert isinstance(program, Program)
    message = pb.CelMatcher(expr_match=expression('request.path == "/"'), description="anything")
    assert read(message) == ExpressionMatcher(program)
    assert str(read(message)) == 'satisfies request.path == "/"'


def parsed(message: expression_pb.CelExpression) -> None:
    message.cel_expr_parsed.expr.const_expr.bool_value = True


def older(message: expression_pb.CelExpression) -> None:
    message.checked_expr.expr.const_expr.bool_value = True


def oldest(message: expression_pb.CelExpression) -> None:
    message.parsed_expr.expr.const_expr.bool_value = True


@pytest.mark.requirement("CEL-1")
@pytest.mark.parametrize("other", [parsed, older, oldest])
def test_other_forms_do_not_count_and_so_are_missing(other: Callable[[expression_pb.CelExpression], None]) -> None:
    message = pb.CelMatcher()
    other(message.expr_match)
    assert read(message) == [
        "expr_match.cel_expr_checked: The expression is missing. Set a checked expression. [Missing]"
    ]
    message.expr_match.MergeFrom(expression('request.path == "/"'))
    assert isinstance(read(message), ExpressionMatcher)


@pytest.mark.requirement("CEL-1")
def test_text_bytes_and_nothing_are_refused() -> None:
    assert read(pb.CelMatcher()) == ["expr_match: This field is required. Add it. [Missing]"]
    assert read(b"\xff") == ["Cannot decode the bytes. Expected xds.type.matcher.v3.CelMatcher. [Unreadable]"]
    message = pb.CelMatcher(expr_match=expression('request.path == "/"'))
    message.expr_match.cel_expr_string = "true"
    assert read(message) == [
        "expr_match.cel_expr_string: Expressions as text are not supported. Set cel_expr_checked. [ExpressionUnchecked]"
    ]


@pytest.mark.requirement("CEL-2")
def test_a_result_that_is_no_bool_is_refused_with_its_path() -> None:
    message = pb.CelMatcher(expr_match=expression("request.path", Result.STRING))
    assert read(message) == [
        (
            "expr_match.cel_expr_checked.type_map: The result is not bool. Write an expression that returns bool. "
            "[ExpressionNotBool]"
        )
    ]


@pytest.mark.requirement("CEL-11")
def test_a_text_is_extracted_or_the_default_is_taken() -> None:
    message = expression_pb.CelExtractString(expr_extract=expression("request.headers['X-User']", Result.STRING))
    found = extract(message)
    assert isinstance(found, ExtractedText)
    assert found.read(CallAttributes(call(("x-user", "ann")))) == "ann"
    assert found.read(CallAttributes(call())) is None
    message.default_value.value = "nobody"
    found = extract(message)
    assert isinstance(found, ExtractedText)
    assert found.read(CallAttributes(call())) == "nobody"
    assert found.read(CallAttributes(call(("x-user", "a\0b")))) == "nobody"


@pytest.mark.requirement("CEL-11")
def test_an_extraction_gives_a_text_and_nothing_else() -> None:
    assert extract(expression_pb.CelExtractString()) == ["expr_extract: This field is required. Add it. [Missing]"]
    assert extract(b"\xff") == ["Cannot decode the bytes. Expected xds.type.v3.CelExtractString. [Unreadable]"]
    message = expression_pb.CelExtractString(expr_extract=expression('request.path == "/"'))
    assert extract(message) == [
        (
            "expr_extract.cel_expr_checked.type_map: The result is not string. Write an expression that returns "
            "string. [ExpressionNotBool]"
        )
    ]
