"""Evaluates programs. Only the engine's own true is true."""

import re
from datetime import datetime
from typing import Any, Final

from authplane.cel.check.admissible_data import MOST_DATA
from authplane.cel.check.engine import BOOL, ERROR, NULL, STRING
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Code, Failed, Outcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.facts import Lookup
from authplane.cel.syntax.vocabulary import Kind
from authplane.cel.wire.expressions import build_timestamp

_PYTHON: Final[dict[Kind, type]] = {
    Kind.STRING: str,
    Kind.BOOL: bool,
    Kind.INT: int,
    Kind.DOUBLE: float,
    Kind.TIMESTAMP: datetime,
    Kind.TEXTS: dict,
    Kind.MEMBERS: dict,
}


def evaluate(program: Program, lookup: Lookup) -> Outcome:
    """Evaluate a program with the known data. Never raises."""
    data = build_data(program, lookup)
    if isinstance(data, Failed):
        return data
    try:
        result = program.running.eval(data=data)
    except (RuntimeError, ValueError, TypeError) as error:
        return failure(str(error))
    if program.untyped and result.type() == NULL:
        # Not to be read: see `plain_value`.
        return Failed(Code.NOT_BOOL)
    value = result.value()
    # An error comes as a string, and strings are truthy.
    if value is True:
        return HOLDS
    return _not_true(result, value)


def evaluate_text(program: Program, lookup: Lookup) -> str | Failed:
    """Return the text that a program gives for what is known. Never raises."""
    data = build_data(program, lookup)
    if isinstance(data, Failed):
        return data
    try:
        result = program.running.eval(data=data)
    except (RuntimeError, ValueError, TypeError) as error:
        return failure(str(error))
    value = result.value()
    # An error comes as a string, too.
    if result.type() == STRING and isinstance(value, str):
        return value
    return failure(str(value)) if result.type() == ERROR else Failed(Code.WRONG_TYPE)


def build_data(program: Program, lookup: Lookup) -> dict[str, Any] | Failed:
    """Collect what a program reads, and nothing else, as the engine takes it."""
    data: dict[str, Any] = {name: {} for name in program.empty}
    total = 0
    for step in program.steps:
        found = lookup(step.variable)
        if found is None:
            continue
        if isinstance(found, Failed):
            return found
        total += found.size
        if not isinstance(found.value, _PYTHON[step.kind]):
            return Failed(Code.WRONG_TYPE)
        value: Any = found.value
        if step.kind is Kind.TIMESTAMP:
            value = build_timestamp(value)
        elif step.keys is not None:
            value = {key: value[key] for key in step.keys if key in value}
        place = data
        for name in step.above:
            place = place.setdefault(name, {})
        place[step.name] = value
    return data if total <= MOST_DATA else Failed(Code.INPUT_TOO_LARGE)


def failure(said: str) -> Failed:
    """Turn what the engine says into a code. Its words may quote data, and go no further."""
    for pattern, code in _CODES:
        if pattern.search(said):
            return Failed(code)
    return Failed(Code.EVALUATION_FAILED)


def _not_true(result: Any, value: object) -> Outcome:
    if value is False and result.type() == BOOL:
        return HOLDS_NOT
    return failure(str(value)) if result.type() == ERROR else Failed(Code.NOT_BOOL)


_CODES: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"^(NOT_FOUND: Key not found|UNKNOWN: No value with name)", Code.NO_SUCH_KEY),
        (
            r"^UNKNOWN: No matching overload|Invalid container type|Applying SELECT|expected integer type",
            Code.NO_SUCH_OVERLOAD,
        ),
        (r"^UNKNOWN: Index error: index|index out of", Code.INDEX_OUT_OF_RANGE),
        (r"^INTERNAL: Iteration budget", Code.TOO_COSTLY),
        (r"^INVALID_ARGUMENT: invalid regular expression", Code.REGEX),
        (r"^\w+: (divide|modulus|division|modulo) by zero|overflow|out of range$", Code.ARITHMETIC),
        (r"^INVALID_ARGUMENT: (cannot convert|.* conversion|String to )", Code.CONVERSION),
    )
)
