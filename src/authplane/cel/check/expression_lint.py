"""Finds valid parts of an expression that are probably not intended."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from authplane.cel.check.program import Program
from authplane.cel.check.risky_expressions import find_risks
from authplane.cel.syntax.expression_problem import position
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Call, Const, Has, Ident, Loop, Node, Select, path_of, walk
from authplane.cel.syntax.vocabulary import Kind, Macro, Vocabulary
from authplane.core.values import dataclass

_EXACT: Final = 2**53
_ARITHMETIC: Final = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})


class Doubt(StrEnum):
    """Why an expression should be looked at again."""

    CONSTANT = "Constant"
    NEGATION_ONLY = "NegationOnly"
    """It only excludes values: every other sender, and one without the attribute, is allowed."""
    UNGUARDED = "UnguardedField"
    ABSORBED_ERROR = "AbsorbedError"
    """One side of ``||`` can fail, which goes unnoticed if the other is true."""
    UPPER_CASE_HEADER = "UpperCaseHeader"
    NEVER_INT = "NeverInt"
    INT_ARITHMETIC = "IntArithmetic"
    IMPRECISE_INT = "ImpreciseInt"
    UNANCHORED = "UnanchoredPattern"
    ALL_OF_NOTHING = "AllOfNothing"
    """``all()`` is true for an empty list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One doubt about an expression."""

    doubt: Doubt
    message: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


def lint(program: Program) -> tuple[Remark, ...]:
    """Return what the author of an expression should think about, in the order of the text."""
    found = [*_whole(program.tree, program), *_risky(program)]
    for node in walk(program.tree):
        found += _part(node, program.vocabulary)
    remarks = (_remark(program.text, node, doubt, message) for node, doubt, message in found)
    return tuple(dict.fromkeys(sorted(remarks, key=lambda each: (each.line, each.column, each.doubt))))


def _remark(text: str, node: Node, doubt: Doubt, message: str) -> Remark:
    line, column = position(text, node.at)
    return Remark(doubt=doubt, message=message, line=line, column=column)


def _whole(tree: Node, program: Program) -> Iterator[tuple[Node, Doubt, str]]:
    if not program.reads:
        message = "The expression does not read the request, so its result never changes. Use request or identity."
        yield tree, Doubt.CONSTANT, message
    elif _only_denies(tree):
        message = "The expression only excludes values, so it allows all others. List the allowed values instead."
        yield tree, Doubt.NEGATION_ONLY, message


def _only_denies(node: Node) -> bool:
    """Tell whether a node only excludes values, and so is true for all others."""
    match node:
        case Const(value=True) | Call(function="_!=_"):
            return True
        case Call(function="_&&_", args=args):
            return all(_only_denies(each) for each in args)
        case Call(function="_||_", args=args) | Call(function="_?_:_", args=(_, *args)):
            return any(_only_denies(each) for each in args)
        case Call(function="!_", args=(operand,)):
            return not _only_denies(operand)
        case Loop(macro=Macro.ALL, test=test):
            return test is not None and _only_denies(test)
        case _:
            return False


def _risky(program: Program) -> Iterator[tuple[Node, Doubt, str]]:
    """Find what may be missing, and where that goes unnoticed."""
    for risk in find_risks(program.tree, program.vocabulary):
        name = render_text(risk.node)
        if risk.absorbed:
            message = (
                f"If {name} is missing, this side of || fails and the other side decides. Guard it with has() or the "
                "operator in."
            )
            yield risk.node, Doubt.ABSORBED_ERROR, message
        else:
            message = (
                f"{name} can be missing; the expression then fails and grants nothing. Guard it with has() or the "
                "operator in."
            )
            yield risk.node, Doubt.UNGUARDED, message


def _part(node: Node, vocabulary: Vocabulary) -> Iterator[tuple[Node, Doubt, str]]:
    key = _header_key(node, vocabulary)
    if key is not None and key != key.lower():
        yield node, Doubt.UPPER_CASE_HEADER, f"Header names are lower case. Write {key.lower()}, not {key}."
    match node:
        case Call(function="_==_" | "_!=_", args=args):
            yield from _comparison(node, args)
        case Call(function=function, args=(left, right)) if function in _ARITHMETIC:
            for one, other in ((left, right), (right, left)):
                if _is_integer(one) and _is_member(other, vocabulary):
                    message = f"{render_text(other)} is a double and cannot be added to an integer. Write 1.0, not 1."
                    yield node, Doubt.INT_ARITHMETIC, message
        case Call(function="matches", args=(*_, Const(value=str(pattern)))) if not _is_anchored(pattern):
            message = (
                "matches() is true if the pattern matches any part of the string. Start the pattern with ^ and end "
                "it with $."
            )
            yield node, Doubt.UNANCHORED, message
        case Loop(macro=Macro.ALL, over=over):
            message = f"all() is true if {render_text(over)} is empty. Test size() too, or ignore this if intended."
            yield node, Doubt.ALL_OF_NOTHING, message
        case Const(value=int(number)) if not isinstance(number, bool) and abs(number) > _EXACT:
            yield (
                node,
                Doubt.IMPRECISE_INT,
                "Doubles cannot represent integers of this size exactly. Compare them as strings.",
            )
        case _:
            pass


def _comparison(node: Node, args: tuple[Node, ...]) -> Iterator[tuple[Node, Doubt, str]]:
    types = {each.name for each in args if isinstance(each, Ident)}
    if any(isinstance(each, Call) and each.function == "type" for each in args) and types & {"int", "uint"}:
        yield node, Doubt.NEVER_INT, "Numbers in requests and tokens are doubles. Compare the type with double."


def _header_key(node: Node, vocabulary: Vocabulary) -> str | None:
    """Return the key of a map of texts that a node reads or looks for."""
    match node:
        case Call(function="@in", args=(Const(value=str(key)), container)):
            path: tuple[str, ...] | None = (*(path_of(container) or ()), key)
        case Has(operand=operand, field=field):
            path = (*(path_of(operand) or ()), field)
        case Select() | Call():
            path = path_of(node)
        case _:
            return None
    variable = vocabulary.by_name.get(".".join(path[:-1])) if path else None
    return path[-1] if path and variable is not None and variable.kind is Kind.TEXTS else None


def _is_integer(node: Node) -> bool:
    return isinstance(node, Const) and isinstance(node.value, int) and not isinstance(node.value, bool)


def _is_member(node: Node, vocabulary: Vocabulary) -> bool:
    path = path_of(node)
    return path is not None and len(path) > 1 and path[0] in vocabulary.roots


def _is_anchored(pattern: str) -> bool:
    return pattern.startswith(("^", r"\A")) and pattern.endswith(("$", r"\z"))
