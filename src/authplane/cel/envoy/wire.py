"""Conditions as the messages that Envoy's RBAC filter takes: ``google.api.expr.v1alpha1``."""

from itertools import count
from typing import assert_never

from google.api.expr.v1alpha1 import syntax_pb2 as pb
from google.protobuf import struct_pb2

from authplane.cel.tree import (
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


def render_condition(tree: Node) -> pb.Expr:
    """Build the message of a condition that was found fit for Envoy; its parts are numbered from 1."""
    made = pb.Expr()
    _Writer().fill(made, tree)
    return made


class _Writer:
    """Writes the nodes of one expression: Envoy demands distinct ids."""

    def __init__(self) -> None:
        self._ids = count(1)

    def fill(self, made: pb.Expr, node: Node) -> None:
        """Write a node into a message that is empty: copies of all below it would take the longest."""
        made.id = next(self._ids)
        match node:
            case Const(value=value):
                _fill_constant(made.const_expr, value)
            case Ident(name=name):
                made.ident_expr.name = name
            case Select(operand=operand, field=field) | Has(operand=operand, field=field):
                self.fill(made.select_expr.operand, operand)
                made.select_expr.field = field
                made.select_expr.test_only = isinstance(node, Has)
            case Call():
                self._fill_call(made.call_expr, node)
            case Items(values=values):
                made.list_expr.SetInParent()
                for each in values:
                    self.fill(made.list_expr.elements.add(), each)
            case Entries(pairs=pairs):
                self._fill_map(made.struct_expr, pairs)
            case Loop() | Message():
                raise ValueError("Envoy takes no loops and no messages in conditions")
            case _:
                assert_never(node)

    def _fill_call(self, made: pb.Expr.Call, node: Call) -> None:
        made.function = node.function
        if node.target is not None:
            self.fill(made.target, node.target)
        for each in node.args:
            self.fill(made.args.add(), each)

    def _fill_map(self, made: pb.Expr.CreateStruct, pairs: tuple[tuple[Node, Node], ...]) -> None:
        made.SetInParent()
        for key, value in pairs:
            entry = made.entries.add(id=next(self._ids))
            self.fill(entry.map_key, key)
            self.fill(entry.value, value)


def _fill_constant(made: pb.Constant, value: Literal) -> None:
    match value:
        case None:
            made.null_value = struct_pb2.NULL_VALUE
        case bool():
            made.bool_value = value
        case int():
            made.int64_value = value
        case Unsigned(value=number):
            made.uint64_value = number
        case float():
            made.double_value = value
        case str():
            made.string_value = value
        case bytes():
            made.bytes_value = value
        case _:
            assert_never(value)
