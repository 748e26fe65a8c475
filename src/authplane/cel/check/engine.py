"""The engine: cel-cpp through cel-expr-python, one pair of environments for each vocabulary.

One environment checks: there, namespaces are messages, so that members and their types are known. The other one runs
checked expressions on plain dicts.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel  # type: ignore[import-untyped]

from authplane.cel.syntax.expression_problem import CelProblem, Reason
from authplane.cel.syntax.syntax_errors import reword_syntax
from authplane.cel.syntax.vocabulary import Kind, Vocabulary
from authplane.cel.wire.expressions import PACKAGE, build_types, message_name
from authplane.cel.wire.numbers import NUMBER, WRITTEN, write_whole_numbers
from authplane.core.values import dataclass

BOOL: Final = cel.Type.BOOL
DYN: Final = cel.Type.DYN
STRING: Final = cel.Type.STRING
ERROR: Final = cel.Type.ERROR
NULL: Final = cel.Type.NULL
TYPE: Final = cel.Type

_MEMBERS: Final = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_TYPES: Final = {
    Kind.STRING: cel.Type.STRING,
    Kind.BOOL: cel.Type.BOOL,
    Kind.INT: cel.Type.INT,
    Kind.DOUBLE: cel.Type.DOUBLE,
    Kind.TIMESTAMP: cel.Type.TIMESTAMP,
    Kind.TEXTS: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    Kind.MEMBERS: _MEMBERS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine, set up for a vocabulary."""

    checking: Any
    running: Any


@lru_cache(maxsize=64)
def engine_for(vocabulary: Vocabulary) -> Engine:
    """Set up the engine for a vocabulary, once."""
    plain = {each: _TYPES[vocabulary.by_name[each].kind] for each in vocabulary.roots if each in vocabulary.by_name}
    spaces = vocabulary.roots & vocabulary.namespaces
    messages = {each: cel.Type(f"{PACKAGE}.{message_name(each)}") for each in spaces}
    return Engine(
        checking=cel.NewEnv(build_types(vocabulary), variables=plain | messages),
        running=cel.NewEnv(variables=plain | dict.fromkeys(spaces, _MEMBERS)),
    )


def compile_text(text: str, vocabulary: Vocabulary) -> Any | tuple[CelProblem, ...]:
    """Check a text and return the engine's expression, or what the engine finds wrong with it."""
    try:
        return engine_for(vocabulary).checking.compile(text)
    except RuntimeError as error:
        return tuple(dict.fromkeys(_parse_problems(str(error), vocabulary)))


@lru_cache(maxsize=1)
def _written() -> bytes:
    """Return the checked form of what writes a number."""
    compiled: bytes = cel.NewEnv(variables={NUMBER: DYN}).compile(WRITTEN).serialize()
    return compiled


def result_type(compiled: Any) -> Any | None:
    """Return the type of an expression's result; None for one that the engine has no name for."""
    try:
        return compiled.return_type()
    except RuntimeError:
        # A map whose keys are such that no map can have them: the checker takes it.
        return None


def load(checked: bytes, vocabulary: Vocabulary) -> Any | CelProblem:
    """Return what runs a checked expression."""
    try:
        return engine_for(vocabulary).running.deserialize(write_whole_numbers(checked, _written))
    except RuntimeError:
        return CelProblem(reason=Reason.NOT_ALLOWED, message="The CEL engine cannot run this expression. Simplify it.")


def plain_value(result: Any) -> Any:
    """Return a result as plain data; an error is a text."""
    # The engine gives out None without counting it, and where None can end, the process ends with it.
    if result.type() == NULL:
        return None
    match result.value():
        case list() as items:
            return [plain_value(each) for each in items]
        case dict() as members:
            return {key: plain_value(each) for key, each in members.items()}
        case value:
            return value


_PLACED: Final = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
_DEEP: Final = re.compile(r"recursion (?:depth|limit)|exceeds .* limit|code ?point", re.IGNORECASE)
_FIELD: Final = re.compile(rf"undefined field '(.*)' not found in struct '{PACKAGE}\.(\w+)'")
_NAME: Final = re.compile(r"undeclared reference to '(.*)' \(in container ''\)")
_OVERLOAD: Final = re.compile(r"found no matching overload for '(.*)' applied to '\((.*)\)'")
_SYNTAX: Final = re.compile(r"^Syntax error: |^reserved identifier: |^<<nil>> parsetree")


def _parse_problems(message: str, vocabulary: Vocabulary) -> Iterator[CelProblem]:
    """Read the engine's report, which has a line for each error and pictures in between."""
    # What follows from another error names its type so.
    placed = [each for each in _PLACED.findall(message) if "'*error*'" not in each[2]]
    unread = False
    for line, column, said in placed:
        reason, words = _reworded(said.removesuffix(" [INVALID_ARGUMENT]"), vocabulary)
        # Where the parser does not understand one part, it guesses at the rest.
        if reason is Reason.SYNTAX and (unread or not words):
            continue
        unread |= reason is Reason.SYNTAX
        yield CelProblem(reason=reason, message=words, line=max(1, int(line)), column=max(1, int(column)))
    if not placed:
        reason, words = _reworded(message.splitlines()[0], vocabulary)
        yield CelProblem(reason=reason, message=words)


def _reworded(said: str, vocabulary: Vocabulary) -> tuple[Reason, str]:
    if _DEEP.search(said):
        return Reason.TOO_LARGE, "The expression is nested too deeply. Simplify it."
    if found := _FIELD.search(said):
        return Reason.UNDECLARED, _no_member(found[2].replace("__", "."), found[1], vocabulary)
    if found := _NAME.search(said):
        known = ", ".join(sorted(vocabulary.roots))
        return Reason.UNDECLARED, f"{found[1]} is not defined. Supported variables: {known}."
    if found := _OVERLOAD.search(said):
        function = found[1].strip("@").replace("_", " ").strip()
        operands = _without_package(found[2])
        return Reason.TYPE, f"{function} cannot be applied to ({operands}). Use operands of types that match."
    if _SYNTAX.search(said):
        return Reason.SYNTAX, reword_syntax(said)
    return Reason.SYNTAX if "yntax" in said else Reason.TYPE, f"{_without_package(said)}. Correct the expression."


def _no_member(namespace: str, member: str, vocabulary: Vocabulary) -> str:
    hint = dict(vocabulary.hints).get(f"{namespace}.{member}")
    known = hint or f"Supported: {', '.join(vocabulary.members(namespace))}."
    return f"{namespace} has no member {member}. {known}"


def type_name(kind: Any) -> str:
    """Write one of the engine's types as the language does."""
    return _without_package(str(kind.name()).lower())


def _without_package(text: str) -> str:
    return re.sub(rf"{PACKAGE}\.(\w+)", lambda found: found[1].replace("__", "."), text)
