"""Finds the members of an object that an expression reads, at any depth."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from authplane.cel.syntax.tree import Call, Const, Has, Loop, Node, Select, parts, path_of, walk
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Members:
    """The members of an object, or of the objects in a list, that are read."""

    named: Mapping[str, "Members"] = field(default_factory=lambda: MappingProxyType({}))
    """By name, with what is read of each in turn."""
    whole: frozenset[str] | None = None
    """All that is there may be read, at any depth; these names are looked for there. None if not so."""

    def __bool__(self) -> bool:
        """Tell whether anything is read at all."""
        return bool(self.named) or self.whole is not None


NOTHING: Final = Members()


def find_members(tree: Node, variable: tuple[str, ...]) -> Members:
    """Return what an expression reads of a variable that is an object."""
    names = frozenset(_names(tree))
    found = NOTHING
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        path, whole = _read(node)
        if path is not None and path[: len(variable)] == variable:
            found = join_members((found, _nested(path[len(variable) :], names if whole else None)))
        elif path is None:
            waiting += parts(node)
    return found


def join_members(several: Iterable[Members]) -> Members:
    """Return what is read if all of these are."""
    named: dict[str, Members] = {}
    whole: frozenset[str] | None = None
    for each in several:
        for name, below in each.named.items():
            named[name] = join_members((named[name], below)) if name in named else below
        if each.whole is not None:
            whole = each.whole | (whole or frozenset())
    return Members(named, whole) if named or whole is not None else NOTHING


def _read(node: Node) -> tuple[tuple[str, ...] | None, bool]:
    """Return the path that a node reads, and whether it reads all that is there; None if it is no path."""
    match node:
        case Has(operand=operand, field=name):
            above = path_of(operand)
            return (None if above is None else (*above, name)), False
        case Call(function="@in", args=(Const(value=str(key)), container)):
            above = path_of(container)
            return (None if above is None else (*above, key)), False
        case _:
            return path_of(node), True


def _nested(path: tuple[str, ...], whole: frozenset[str] | None) -> Members:
    made = Members(whole=whole)
    for name in reversed(path):
        made = Members({name: made})
    return made


def _names(tree: Node) -> Iterable[str]:
    """Yield the names of members that an expression reads of values which it has found: elements, and results."""
    elements = {node.variable for node in walk(tree) if isinstance(node, Loop)}
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        path, _ = _read(node)
        if path is not None:
            yield from path[1:] if path[0] in elements else ()
            continue
        match node:
            case Select(field=name) | Has(field=name):
                yield name
            case Call(function="_[_]", args=(_, Const(value=str(key)))):
                yield key
            case Call(function="@in", args=(Const(value=str(key)), _)):
                yield key
            case _:
                pass
        waiting += parts(node)
