"""Whether a tree depends on the authority of a call, which is not always known."""

from collections.abc import Iterator
from typing import Any, TypeVar, assert_never

from authplane.cel.calls.call_vocabulary import HEADERS
from authplane.cel.check.program import Program
from authplane.dataplane.filters.call_headers import AUTHORITY
from authplane.dataplane.filters.calls import Call
from authplane.matching.expressions.expression_matcher import ExpressionMatcher
from authplane.matching.matcher_tree import (
    And,
    ExactMap,
    ListMatcher,
    Matcher,
    Nested,
    Not,
    Or,
    Predicate,
    PrefixMap,
    Single,
)
from authplane.matching.tree_inputs import HeaderInput

A = TypeVar("A")


def asks_authority(matcher: Matcher[Call, A]) -> bool:
    """Tell whether any part of a tree reads the authority of a call."""
    outcomes = [matcher.on_no_match]
    match matcher:
        case ListMatcher(branches=branches):
            outcomes += [each.on_match for each in branches]
            asks = any(_asks(part) for each in branches for part in _parts(each.predicate))
        case ExactMap(input=source, entries=entries) | PrefixMap(input=source, entries=entries):
            outcomes += [each for _, each in entries]
            asks = _asks(source)
        case _:
            assert_never(matcher)
    return asks or any(isinstance(each, Nested) and asks_authority(each.matcher) for each in outcomes)


def _parts(predicate: Predicate[Call]) -> Iterator[object]:
    """Return the inputs and matchers of a predicate."""
    match predicate:
        case Single(source, matcher):
            yield from (source, matcher)
        case And(parts) | Or(parts):
            for each in parts:
                yield from _parts(each)
        case Not(part):
            yield from _parts(part)
        case _:
            assert_never(predicate)


def _asks(part: Any) -> bool:
    match part:
        case HeaderInput(name=name):
            return name in AUTHORITY
        case ExpressionMatcher(program=program):
            return _reads_authority(program)
        case _:
            return False


def _reads_authority(program: Program) -> bool:
    for step in program.steps:
        if step.variable == "request.host":
            return True
        if step.variable == HEADERS and (step.keys is None or any(key.lower() in AUTHORITY for key in step.keys)):
            return True
    return False
