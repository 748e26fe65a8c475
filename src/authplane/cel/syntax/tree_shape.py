"""Compares trees without the positions of their parts."""

from typing import Any, TypeAlias

from authplane.cel.syntax.tree import Call, Const, Entries, Has, Ident, Items, Loop, Message, Node, Select

Shape: TypeAlias = tuple[Any, ...]

_NUMBERS = (int, float)


def is_same(one: Node, other: Node) -> bool:
    """Tell whether two trees mean the same, however their ``&&`` and ``||`` are grouped; never true of loops."""
    return _shape(one) == _shape(other)


def _shape(node: Node) -> Shape:
    match node:
        case Const(value=value):
            # By their texts, as 1 equals 1.0 and true.
            return Const, type(value), repr(value)
        case Ident(name=name):
            return Ident, name
        case Select(operand=operand, field=field) | Has(operand=operand, field=field):
            return type(node), _shape(operand), field
        case Call():
            return _call(node)
        case _:
            return _collection(node)


def _call(call: Call) -> Shape:
    match call:
        case Call(function="_&&_" | "_||_" as function):
            return Call, function, *map(_shape, _operands(call, function))
        case Call(function="-_", args=(operand,)):
            return _negated(_shape(operand))
        case Call(function=function, target=target, args=args):
            return Call, function, None if target is None else _shape(target), *map(_shape, args)


def _collection(node: Items | Entries | Message | Loop) -> Shape:
    match node:
        case Items(values=values):
            return Items, *map(_shape, values)
        case Entries(pairs=pairs):
            return Entries, *((_shape(key), _shape(value)) for key, value in pairs)
        case Message() | Loop():
            return type(node), object()


def _operands(node: Node, function: str) -> list[Node]:
    if isinstance(node, Call) and node.function == function:
        return [operand for each in node.args for operand in _operands(each, function)]
    return [node]


def _negated(shape: Shape) -> Shape:
    # The parser takes the sign of a number for a part of it.
    if shape[0] is Const and shape[1] in _NUMBERS:
        kind, text = shape[1:]
        return Const, kind, repr(-kind(text))
    return Call, "-_", None, shape
