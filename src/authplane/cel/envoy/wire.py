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
    return _Writer().node(tree)


class _Writer:
    """Writes the nodes of one expression: Envoy demands distinct ids."""

    def __init__(self) -> None:
        self._ids = count(1)

    def node(self, node: Node) -> pb.Expr:
        made = pb.Expr(id=next(self._ids))
        match node:
            case Const(value=value):
                made.const_expr.CopyFrom(_constant(value))
            case Ident(name=name):
                made.ident_expr.name = name
            case Select(operand=operand, field=field) | Has(operand=operand, field=field):
                made.select_expr.operand.CopyFrom(self.node(operand))
                made.select_expr.field = field
                made.select_expr.test_only = isinstance(node, Has)
            case Call():
                made.call_expr.CopyFrom(self._call(node))
            case Items(values=values):
                made.list_expr.CopyFrom(pb.Expr.CreateList(elements=[self.node(each) for each in values]))
            case Entries(pairs=pairs):
                entries = [self._entry(key, value) for key, value in pairs]
                made.struct_expr.CopyFrom(pb.Expr.CreateStruct(entries=entries))
            case Loop() | Message():
                raise ValueError("Envoy takes no loops and no messages in conditions")
            case _:
                assert_never(node)
        return made

    def _call(self, node: Call) -> pb.Expr.Call:
        target = None if node.target is None else self.node(node.target)
        return pb.Expr.Call(function=node.function, target=target, args=[self.node(each) for each in node.args])

    def _entry(self, key: Node, value: Node) -> pb.Expr.CreateStruct.Entry:
        return pb.Expr.CreateStruct.Entry(id=next(self._ids), map_key=self.node(key), value=self.node(value))


def _constant(value: Literal) -> pb.Constant:
    made = pb.Constant()
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
    return made
