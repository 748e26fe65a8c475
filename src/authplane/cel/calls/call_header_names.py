"""Names of headers in expressions about calls, in any case."""

from dataclasses import replace
from typing import Final

from authplane.cel.syntax.tree import Call, Const, Entries, Has, Items, Node, Select, path_of

_HEADERS: Final = ("request", "headers")


def with_small_names(node: Node) -> Node:
    """Return the expression with header names in lower case; the same object if they already are.

    Who reads all headers has them by these names only.
    """
    match node:
        case Select() | Has():
            return _member(node)
        case Call():
            return _with_operands(node)
        case Items(values=values):
            changed = tuple(map(with_small_names, values))
            return node if changed == values else replace(node, values=changed)
        case Entries(pairs=pairs):
            made = tuple((with_small_names(key), with_small_names(value)) for key, value in pairs)
            return node if made == pairs else replace(node, pairs=made)
        case _:
            return node


def _member(node: Select | Has) -> Node:
    operand, field = node.operand, node.field
    if not _is_other(operand, field):
        changed = with_small_names(operand)
        return node if changed is operand else replace(node, operand=changed)
    if isinstance(node, Has):
        return _call(node, "@in", _small(node, field), operand)
    return _call(node, "_[_]", operand, _small(node, field))


def _is_other(operand: Node, name: str) -> bool:
    return name != name.lower() and path_of(operand) == _HEADERS


def _with_operands(node: Call) -> Call:
    match node:
        case Call(function="_[_]", args=(operand, Const(value=str(name)) as key)) if _is_other(operand, name):
            return replace(node, args=(operand, _small(key, name)))
        case Call(function="@in", args=(Const(value=str(name)) as key, operand)) if _is_other(operand, name):
            return replace(node, args=(_small(key, name), operand))
        case Call(target=target, args=args):
            subject = None if target is None else with_small_names(target)
            changed = tuple(map(with_small_names, args))
            return node if subject is target and changed == args else replace(node, target=subject, args=changed)


def _small(node: Node, name: str) -> Const:
    return Const(id=node.id, at=node.at, value=name.lower())


def _call(node: Node, function: str, *args: Node) -> Call:
    return Call(id=node.id, at=node.at, function=function, target=None, args=args)
