"""Checks the text of an expression: by the CEL engine, then by our own rules."""

from typing import Any, Final

from authplane.cel.check.engine import BOOL, DYN, STRING, compile_text, load, result_type, type_name
from authplane.cel.check.expression_result import Result
from authplane.cel.check.forbidden_parts import check_tree
from authplane.cel.syntax.expression_problem import CelProblem, Reason, problem_at
from authplane.cel.syntax.read_paths import Read, find_reads
from authplane.cel.syntax.tree import Node
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.cel.wire.expressions import parse_tree, sorted_bytes
from authplane.core.values import dataclass

_RESULTS: Final = {Result.BOOL: (BOOL,), Result.PERHAPS_BOOL: (BOOL, DYN), Result.STRING: (STRING,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is known of an expression that is right."""

    form: bytes
    """A ``google.protobuf.Any`` with the ``cel.expr.CheckedExpr``, serialized."""
    tree: Node
    reads: tuple[Read, ...]
    running: Any
    """The engine's form of it."""
    untyped: bool
    """Whether the type of its result is known only when a request comes."""


def check_text(text: str, vocabulary: Vocabulary, result: Result) -> Checked | tuple[CelProblem, ...]:
    """Check a text that the engine's parser may be given; or say everything that is wrong with it."""
    compiled = compile_text(text, vocabulary)
    if isinstance(compiled, tuple):
        return compiled
    returns = result_type(compiled)
    form = sorted_bytes(compiled.serialize())
    tree = parse_tree(form)
    if tree is None:
        return (
            CelProblem(
                reason=Reason.NOT_ALLOWED, message="The macro is not supported. Rewrite the expression without it."
            ),
        )
    reads, bare = find_reads(tree, vocabulary)
    problems = check_tree(tree, text, vocabulary, bare)
    if returns is None or returns not in _RESULTS[result]:
        wanted = type_name(_RESULTS[result][0])
        found = f"not {wanted}" if returns is None else f"{type_name(returns)}, not {wanted}"
        said = f"The result is {found}. Write an expression that returns {wanted}."
        problems = (problem_at(text, tree.at, Reason.NOT_BOOL, said), *problems)
    if problems:
        return problems
    running = load(form, vocabulary)
    if isinstance(running, CelProblem):
        return (running,)
    return Checked(form=form, tree=tree, reads=reads, running=running, untyped=running.return_type() == DYN)
