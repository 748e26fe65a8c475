"""The syntax tree of a checked expression, with macros as they were written."""

from collections.abc import Iterator
from typing import TypeAlias

from authplane.cel.syntax.vocabulary import Macro
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A literal such as ``1u``."""

    value: int


Literal: TypeAlias = bool | int | float | str | bytes | Unsigned | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    id: int
    """Distinct within an expression."""
    at: int
    """The index of the character where this part is in the text; that of the operator, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(_Placed):
    """A literal."""

    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ident(_Placed):
    """A variable, a macro's variable or the name of a type."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(_Placed):
    """``operand.field``."""

    operand: "Node"
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Has(_Placed):
    """``has(operand.field)``."""

    operand: "Node"
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(_Placed):
    """A function, or an operator by its name in the tree (``_&&_``)."""

    function: str
    target: "Node | None"
    """The part before the dot of ``target.function(...)``."""
    args: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(_Placed):
    """A list."""

    values: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries(_Placed):
    """A map."""

    pairs: tuple[tuple["Node", "Node"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(_Placed):
    """A protobuf message: ``Name{field: value}``."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop(_Placed):
    """A macro that looks at every element: ``over.all(variable, test)``, ``over.map(variable, test, result)``."""

    macro: Macro
    variable: str
    over: "Node"
    test: "Node | None"
    result: "Node | None"


Node: TypeAlias = Const | Ident | Select | Has | Call | Items | Entries | Message | Loop


def parts(node: Node) -> tuple[Node, ...]:
    """Return the parts that a node is made of, in the order of the text."""
    match node:
        case Select(operand=operand) | Has(operand=operand):
            return (operand,)
        case Call(target=target, args=args):
            return args if target is None else (target, *args)
        case Items(values=values):
            return values
        case Entries(pairs=pairs):
            return tuple(each for pair in pairs for each in pair)
        case Loop(over=over, test=test, result=result):
            return (over, *(each for each in (test, result) if each is not None))
        case Const() | Ident() | Message():
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(parts(each))


def path_of(node: Node) -> tuple[str, ...] | None:
    """Return the names of ``a.b["c"]`` if a node is nothing but that."""
    match node:
        case Ident(name=name):
            return (name,)
        case Select(operand=operand, field=field):
            above = path_of(operand)
            return None if above is None else (*above, field)
        case Call(function="_[_]", args=(operand, Const(value=str(key)))):
            above = path_of(operand)
            return None if above is None else (*above, key)
        case _:
            return None
