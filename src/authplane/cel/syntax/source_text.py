"""Writes a part of an expression as people would."""

from typing import Final

from authplane.cel.syntax.read_paths import quoted
from authplane.cel.syntax.tree import (
    Call,
    Const,
    Entries,
    Has,
    Ident,
    Items,
    Literal,
    Loop,
    Message,
    Node,
    Select,
    Unsigned,
)

_BINARY: Final = {
    "_||_": (1, "||"), "_&&_": (2, "&&"),
    "_==_": (3, "=="), "_!=_": (3, "!="), "_<_": (3, "<"), "_<=_": (3, "<="), "_>_": (3, ">"), "_>=_": (3, ">="),
    "@in": (3, "in"), "_+_": (4, "+"), "_-_": (4, "-"), "_*_": (5, "*"), "_/_": (5, "/"), "_%_": (5, "%"),
}  # fmt: skip
"""How tightly an operator binds, and its sign."""
_TERNARY: Final = 0
_UNARY: Final = 6
_TIGHT: Final = 7


def render_text(node: Node) -> str:
    """Write a node as an expression of the same meaning."""
    return _write(node, _TERNARY)


def _write(node: Node, around: int) -> str:
    text, binds = _written(node)
    return f"({text})" if binds < around else text


def _written(node: Node) -> tuple[str, int]:
    match node:
        case Const(value=value):
            text = _literal(value)
            return text, _UNARY if text[0] == "-" else _TIGHT
        case Ident(name=name):
            return name, _TIGHT
        case Select(operand=operand, field=field):
            return f"{_write(operand, _TIGHT)}.{field}", _TIGHT
        case Has(operand=operand, field=field):
            return f"has({_write(operand, _TIGHT)}.{field})", _TIGHT
        case Call():
            return _call(node)
        case _:
            return _collection(node), _TIGHT


def _call(call: Call) -> tuple[str, int]:
    match call:
        case Call(function="_?_:_", args=(test, then, otherwise)):
            return f"{_write(test, 1)} ? {_write(then, 1)} : {_write(otherwise, 0)}", _TERNARY
        case Call(function="!_" | "-_" as function, args=(operand,)):
            # Two signs in a row are taken for none.
            return f"{function[0]}{_write(operand, _TIGHT)}", _UNARY
        case Call(function="_[_]", args=(operand, index)):
            return f"{_write(operand, _TIGHT)}[{render_text(index)}]", _TIGHT
        case Call(function=function, args=(left, right)) if function in _BINARY:
            binds, sign = _BINARY[function]
            return f"{_write(left, binds)} {sign} {_write(right, binds + 1)}", binds
        case Call(function=function, target=target, args=args):
            before = "" if target is None else f"{_write(target, _TIGHT)}."
            return f"{before}{function}({_joined(args)})", _TIGHT


def _collection(node: Items | Entries | Message | Loop) -> str:
    match node:
        case Items(values=values):
            return f"[{_joined(values)}]"
        case Entries(pairs=pairs):
            return "{" + ", ".join(f"{render_text(key)}: {render_text(value)}" for key, value in pairs) + "}"
        case Message(name=name):
            return f"{name}{{}}"
        case Loop(macro=macro, variable=variable, over=over, test=test, result=result):
            said = _joined(tuple(each for each in (test, result) if each is not None))
            return f"{_write(over, _TIGHT)}.{macro}({variable}, {said})"


def _joined(nodes: tuple[Node, ...]) -> str:
    return ", ".join(render_text(each) for each in nodes)


def _literal(value: Literal) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case bytes():
            return 'b"' + "".join(f"\\x{each:02x}" for each in value) + '"'
        case Unsigned(number):
            return f"{number}u"
        case int() | float():
            return repr(value)
