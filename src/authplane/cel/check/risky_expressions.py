"""Finds members that an expression reads without a test, although they may be missing.

``has(a.b) && ...``, ``"b" in a && ...`` and ``!has(a.b) || ...`` are tests, and so is the condition of ``?:``.
"""

from collections.abc import Iterator
from typing import TypeAlias

from authplane.cel.syntax.read_paths import read_path
from authplane.cel.syntax.tree import Call, Const, Has, Loop, Node, Select, parts, path_of
from authplane.cel.syntax.vocabulary import MAPS, Vocabulary
from authplane.core.values import dataclass

Paths: TypeAlias = frozenset[tuple[str, ...]]

_NOTHING: Paths = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A read that fails if its member is missing."""

    node: Node
    absorbed: bool
    """Whether it is below ``||``, where the other side may hide the failure."""


def find_risks(tree: Node, vocabulary: Vocabulary) -> tuple[Risk, ...]:
    """Return the unguarded reads of an expression, one for each member and kind of risk."""
    found: dict[tuple[tuple[str, ...], bool], Risk] = {}
    for path, risk in _risks(tree, vocabulary, _NOTHING, absorbed=False):
        found.setdefault((path, risk.absorbed), risk)
    return tuple(found.values())


def _risks(
    node: Node, vocabulary: Vocabulary, known: Paths, *, absorbed: bool
) -> Iterator[tuple[tuple[str, ...], Risk]]:
    path = path_of(node)
    if path is not None:
        if _may_miss(path, vocabulary) and path not in known:
            yield path, Risk(node=node, absorbed=absorbed)
        return
    below = absorbed or (isinstance(node, Call) and node.function == "_||_")
    for each, there in _told(node):
        yield from _risks(each, vocabulary, known | there, absorbed=below)


def _told(node: Node) -> list[tuple[Node, Paths]]:
    """Return the parts of a node, each with what is surely there when it counts."""
    match node:
        case Call(function="_&&_" | "_||_" as function, args=(left, right)):
            true = function == "_&&_"
            return [(left, there_if(right, true=true)), (right, there_if(left, true=true))]
        case Call(function="_?_:_", args=(test, then, otherwise)):
            return [(test, _NOTHING), (then, there_if(test, true=True)), (otherwise, there_if(test, true=False))]
        case Loop(over=over, test=Has() | Call() as test, result=Has() | Call() | Select() as result):
            return [(over, _NOTHING), (test, _NOTHING), (result, there_if(test, true=True))]
        case _:
            return [(each, _NOTHING) for each in parts(node)]


def there_if(node: Node, *, true: bool) -> Paths:
    """Return what is surely there if a node is true, or if it is false."""
    match node:
        case Has(operand=operand, field=field):
            above = path_of(operand)
            return frozenset({(*above, field)}) if true and above is not None else _NOTHING
        case Call(function="@in", args=(Const(value=str(key)), container)):
            above = path_of(container)
            return frozenset({(*above, key)}) if true and above is not None else _NOTHING
        case Call(function="!_", args=(operand,)):
            return there_if(operand, true=not true)
        case Call(function="_&&_" | "_||_" as function, args=(left, right)):
            one, other = there_if(left, true=true), there_if(right, true=true)
            return one | other if (function == "_&&_") is true else one & other
        case _:
            return _NOTHING


def _may_miss(path: tuple[str, ...], vocabulary: Vocabulary) -> bool:
    if path[0] not in vocabulary.roots:
        return False
    found = read_path(path, vocabulary)
    return found is not None and found[0].kind in MAPS and bool(found[1])
