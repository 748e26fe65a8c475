"""``cel.expr.CheckedExpr`` to our programs, and from text to it.

The engine never gets the received message, and we do not trust its types and references. We read its syntax tree, write
it as text, and check that text like any other; the result must be the same tree.
"""

from typing import Final

from cel.expr import checked_pb2 as pb

from authplane.cel.calls.call_header_names import with_small_names
from authplane.cel.calls.call_vocabulary import SERVER_CALLS, compile_call_expression
from authplane.cel.check.expression_result import Result
from authplane.cel.check.program import Program
from authplane.cel.syntax.expression_problem import CelProblem
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree_shape import is_same
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.cel.wire.expressions import build_checked
from authplane.cel.wire.received import parse_expression
from authplane.core.problems import Problems
from authplane.core.text import shorten

LARGEST: Final = 131_072
"""The bytes of a whole ``CheckedExpr``, which says much besides the expression."""


def parse_checked(
    message: pb.CheckedExpr, vocabulary: Vocabulary, problems: Problems, result: Result = Result.BOOL
) -> Program | None:
    """Read an expression that another program has checked, and check it again; None after a problem."""
    if message.ByteSize() > LARGEST:
        said = f"The expression has {message.ByteSize()} bytes; the maximum is {LARGEST}. Shorten it."
        problems.add("ExpressionTooLarge", said)
        return None
    before = problems.error_count
    _check_result(message, result, problems)
    with problems.at("expr"):
        tree = parse_expression(message, vocabulary, problems)
        if tree is None or problems.error_count != before:
            return None
        tree = with_small_names(tree)
        program = compile_call_expression(render_text(tree), vocabulary, result)
        if isinstance(program, tuple):
            for each in program:
                problems.add(f"Expression{each.reason}", _sentence(each, render_text(tree)))
            return None
        if not is_same(tree, program.tree):
            said = "The expression cannot be written as text. Compile it from text with a standard CEL compiler."
            problems.add("ExpressionUnsupported", said)
            return None
        return program


def checked_expression(
    text: str, vocabulary: Vocabulary = SERVER_CALLS, result: Result = Result.BOOL
) -> pb.CheckedExpr | tuple[CelProblem, ...]:
    """Check an expression about calls, and return it as it is sent; else everything that is wrong with it."""
    program = compile_call_expression(text, vocabulary, result)
    return program if isinstance(program, tuple) else build_checked(program.checked)


def _check_result(message: pb.CheckedExpr, result: Result, problems: Problems) -> None:
    """Report an expression whose declared result has the wrong type."""
    wanted = pb.Type.STRING if result is Result.STRING else pb.Type.BOOL
    if message.expr.id not in message.type_map:
        said = "The type of the result is not set. Compile the expression with a type checker."
    elif message.type_map[message.expr.id].primitive == wanted:
        return
    else:
        said = f"The result is not {result.value}. Write an expression that returns {result.value}."
    with problems.at("type_map"):
        problems.add("ExpressionNotBool", said)


def _sentence(problem: CelProblem, text: str) -> str:
    return f"{problem.line}:{problem.column} of {shorten(text, 200)}: {problem.message}"
