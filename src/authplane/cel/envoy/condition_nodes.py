"""Parts of conditions that are not written by anybody: short ways to build them."""

from collections.abc import Iterable
from functools import reduce
from typing import Final

from authplane.cel.syntax.tree import Call, Const, Entries, Has, Ident, Literal, Node, Select


def literal(value: Literal) -> Const:
    """Return a literal."""
    return Const(id=0, at=0, value=value)


def name(dotted: str) -> Node:
    """Return ``a.b.c``."""
    first, *fields = dotted.split(".")
    start: Node = Ident(id=0, at=0, name=first)
    return reduce(select, fields, start)


def select(operand: Node, field: str) -> Node:
    """Return ``operand.field``."""
    return Select(id=0, at=0, operand=operand, field=field)


def has(operand: Node, field: str) -> Node:
    """Return ``has(operand.field)``."""
    return Has(id=0, at=0, operand=operand, field=field)


def call(function: str, *args: Node) -> Node:
    """Return a function, or an operator by its name in the tree."""
    return Call(id=0, at=0, function=function, target=None, args=args)


def member(operand: Node, *keys: str) -> Node:
    """Return ``operand["key"]["key"]``."""
    return reduce(lambda above, key: call("_[_]", above, literal(key)), keys, operand)


def equal(left: Node, value: Literal) -> Node:
    """Return ``left == value``."""
    return call("_==_", left, literal(value))


def matches(operand: Node, pattern: str) -> Node:
    """Return ``operand.matches(pattern)``."""
    return Call(id=0, at=0, function="matches", target=operand, args=(literal(pattern),))


def negated(operand: Node) -> Node:
    """Return ``!operand``."""
    return call("!_", operand)


def record(members: Iterable[tuple[str, Node]]) -> Node:
    """Return a map."""
    return Entries(id=0, at=0, pairs=tuple((literal(key), value) for key, value in members))


def every(conditions: Iterable[Node]) -> Node:
    """Return a condition that is true if all of these are; without any it is always true."""
    return _joined("_&&_", tuple(conditions), neutral=True)


def some(conditions: Iterable[Node]) -> Node:
    """Return a condition that is true if one of these is; without any it is never true."""
    return _joined("_||_", tuple(conditions), neutral=False)


def only_if(condition: Node, value: Node) -> Node:
    """Return a value that is there only under a condition; otherwise to read it is an error, as for a missing one."""
    return call("_?_:_", condition, value, MISSING)


def _joined(operator: str, conditions: tuple[Node, ...], *, neutral: bool) -> Node:
    """Join by halves: Envoy reads only so many messages within messages."""
    if not conditions:
        return literal(neutral)
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    first, second = (_joined(operator, each, neutral=neutral) for each in (conditions[:middle], conditions[middle:]))
    return call(operator, first, second)


METADATA: Final = name("metadata.filter_metadata")
MISSING: Final = member(METADATA, "authplane.missing")
"""A key that is never written: reading it is an error, which `||` and `&&` treat like that of a missing key."""
