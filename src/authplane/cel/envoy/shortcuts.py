"""Parts of expressions that Envoy's own matchers tell as well, for a fraction of the time.

An expression grants only where it is true, and so do these: what fails in an expression is false in a check. So a part
may become a check only where it has to be true for the whole to be, and nothing that is turned round does.
"""

from typing import Final

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.plain_paths import CANONICAL_CHECK, CANONICAL_PATH
from authplane.cel.envoy.request_checks import (
    ALWAYS,
    PRESENT,
    Begins,
    Check,
    Equals,
    Header,
    Lists,
    Metadata,
    Not,
    Path,
    every,
    some,
)
from authplane.cel.envoy.translate import Condition
from authplane.cel.syntax.tree import Call, Const, Items, Node

_METHOD: Final = condition_nodes.name("request.method")


def shorten(condition: Condition) -> Condition:
    """Return a condition for the same requests, with as much of it as possible as a check."""
    checks: list[Check] = [condition.check]
    left: list[Node] = []
    for part in _parts(condition.tree):
        check = _true(part)
        if check is None:
            left.append(part)
        else:
            checks.append(check)
    return Condition(
        check=every(checks),
        tree=condition_nodes.every(left),
        conversion=condition.conversion,
        concatenation=condition.concatenation,
        reads_mcp=condition.reads_mcp,
    )


def _parts(tree: Node) -> list[Node]:
    match tree:
        case Call(function="_&&_", args=(one, other)):
            return [*_parts(one), *_parts(other)]
        case _:
            return [tree]


def _true(node: Node) -> Check | None:
    """Return a check that is true exactly if an expression is; None if there is none."""
    match node:
        case Const(value=True):
            return ALWAYS
        case Call(function="_&&_", args=args):
            parts = _all_true(args)
            return None if parts is None else every(parts)
        case Call(function="_||_", args=args):
            parts = _all_true(args)
            return None if parts is None else some(parts)
        case Call():
            return _compared(node)
        case _:
            return None


def _all_true(conditions: tuple[Node, ...]) -> list[Check] | None:
    found = [check for each in conditions if (check := _true(each)) is not None]
    return found if len(found) == len(conditions) else None


def _compared(node: Call) -> Check | None:
    match node:
        case Call(function="_==_", args=(value, Const(value=str(text))) | (Const(value=str(text)), value)):
            return _tested(value, (Equals(text),))
        case Call(function="_!=_", args=(value, Const(value=str(text)))):
            return _differs(value, text)
        case Call(function="@in", args=(value, Items(values=values))):
            texts = [Equals(each.value) for each in values if isinstance(each, Const) and isinstance(each.value, str)]
            return _tested(value, tuple(texts)) if texts and len(texts) == len(values) else None
        case Call(function="@in", args=(Const(value=str(text)), value)):
            return _has(value, text)
        case Call(function="startsWith", target=value, args=(Const(value=str(text)),)) if value is not None and text:
            return _tested(value, (Begins(text),))
        case _:
            return None


def _tested(value: Node, tests: tuple[Equals | Begins, ...]) -> Check | None:
    """Return a check: a value exists and passes one of these tests."""
    keys = _keys(value)
    if keys is not None:
        return Metadata(keys, tests)
    if value == _METHOD:
        return some(Header(":method", each) for each in tests)
    if value == CANONICAL_PATH:
        return every((CANONICAL_CHECK, some(map(Path, tests))))
    match value:
        case Call(function="_?_:_", args=(known, found, condition_nodes.MISSING)):
            first, second = _true(known), _tested(found, tests)
            return None if first is None or second is None else every((first, second))
        case _:
            return None


def _differs(value: Node, text: str) -> Check | None:
    keys = _keys(value)
    return None if keys is None else every((Metadata(keys, (PRESENT,)), Not(Metadata(keys, (Equals(text),)))))


def _has(value: Node, text: str) -> Check | None:
    """Return a check: a value is a map with a key, or a list with a member."""
    keys = _keys(value)
    if keys is None or not text:
        return None
    return some((Metadata((*keys, text), (PRESENT,)), Metadata(keys, (Lists(text),))))


def _keys(value: Node) -> tuple[str, ...] | None:
    """Return the way to a value that a filter has found; None if it is something else, or all that a filter found.

    Envoy refuses ways with keys that are empty.
    """
    found: list[str] = []
    while value != condition_nodes.METADATA:
        match value:
            case Call(function="_[_]", args=(container, Const(value=str(key)))) if key:
                found.append(key)
                value = container
            case _:
                return None
    return tuple(reversed(found)) if len(found) > 1 else None
