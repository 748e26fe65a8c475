"""``CelMatcher`` and ``CelExtractString`` to our values."""

from typing import Final

from google.protobuf.message import DecodeError
from xds.type.matcher.v3 import cel_pb2 as pb
from xds.type.v3 import cel_pb2 as expression_pb

from authplane.cel.calls.wire import parse_checked
from authplane.cel.check.expression_result import Result
from authplane.cel.check.program import Program
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.core.problems import Problems
from authplane.matching.expressions.expression_matcher import ExpressionMatcher, ExtractedText

MATCHER: Final = "xds.type.matcher.v3.CelMatcher"
INPUT: Final = "xds.type.matcher.v3.HttpAttributesCelMatchInput"
"""The input that gives expressions what they read; it has no fields."""
EXTRACTION: Final = "xds.type.v3.CelExtractString"


def parse_cel_matcher(data: bytes, vocabulary: Vocabulary, problems: Problems) -> ExpressionMatcher | None:
    """Read the bytes of a ``CelMatcher``; None if it has problems."""
    try:
        message = pb.CelMatcher.FromString(data)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {MATCHER}.")
        return None
    with problems.at("expr_match"):
        if not message.HasField("expr_match"):
            problems.add("Missing", "This field is required. Add it.")
            return None
        program = _parse_expression(message.expr_match, vocabulary, Result.BOOL, problems)
    return None if program is None else ExpressionMatcher(program)


def parse_extraction(data: bytes, vocabulary: Vocabulary, problems: Problems) -> ExtractedText | None:
    """Read the bytes of a ``CelExtractString``; None if it has problems."""
    try:
        message = expression_pb.CelExtractString.FromString(data)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {EXTRACTION}.")
        return None
    with problems.at("expr_extract"):
        if not message.HasField("expr_extract"):
            problems.add("Missing", "This field is required. Add it.")
            return None
        program = _parse_expression(message.expr_extract, vocabulary, Result.STRING, problems)
    default = message.default_value.value if message.HasField("default_value") else None
    return None if program is None else ExtractedText(program, default)


def _parse_expression(
    message: expression_pb.CelExpression, vocabulary: Vocabulary, result: Result, problems: Problems
) -> Program | None:
    if message.cel_expr_string:
        with problems.at("cel_expr_string"):
            problems.add("ExpressionUnchecked", "Expressions as text are not supported. Set cel_expr_checked.")
        return None
    with problems.at("cel_expr_checked"):
        # The other fields of an expression do not count (gRFC A106).
        if not message.HasField("cel_expr_checked"):
            problems.add("Missing", "The expression is missing. Set a checked expression.")
            return None
        return parse_checked(message.cel_expr_checked, vocabulary, problems, result)
