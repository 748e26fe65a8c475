"""Expressions in checked form that nobody honest sends: valid ones that are changed at random."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from cel.expr import checked_pb2 as pb
from cel.expr.syntax_pb2 import Constant, Expr
from google.protobuf.message import DecodeError
from tests.oracles.expressions import Expressions, text_of

from authplane.cel.calls.wire import checked_expression

FUNCTIONS: Final = (
    "_==_", "_!=_", "_<_", "_>_", "@in", "_in_", "_&&_", "_||_", "!_", "_?_:_", "_[_]", "_+_", "_-_", "_*_", "_/_",
    "_%_", "-_", "size", "startsWith", "endsWith", "contains", "matches", "type", "dyn", "bool", "bytes", "double",
    "int", "string", "uint", "timestamp", "duration", "getHours", "getFullYear", "has", "all", "exists", "map",
    "cel.bind", "@not_strictly_false", "optional.of", "_?._", "", "size) || (true", "\0", "é", "x" * 5_000,
)  # fmt: skip
NAMES: Final = (
    "request", "source", "connection", "xds", "request.path", ".request.path", "request..path", "true", "null", "in",
    "@result", "__result__", "int", "google.protobuf.Timestamp", "", "a b", "path", "headers", "filter_metadata",
    "request.path == '' || request", "\0", "\ud7ff", "é", "_", "x" * 5_000,
)  # fmt: skip
PATTERNS: Final = ("(a*)*b", "a{1000}", "(((((a{9}){9}){9}){9}){9})", "[", "\\C", "(?i)k", ".*" * 200, "\\pN", "")
TEXTS: Final = ("", "a", "\0", "x" * 40_000, '"', "\\", "\n\r\u2028", "2026-01-01T00:00:00Z", "-1s", *PATTERNS)
INTEGERS: Final = (0, 1, -1, 2**63 - 1, -(2**63))


class Hostile:
    """Makes messages; the same number makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)  # noqa: S311 (the same cases every time)
        self._honest = Expressions(seed)

    def message(self) -> pb.CheckedExpr:
        """Return an expression that is changed in one to six places."""
        message = self._valid()
        for _ in range(self._chance.randint(1, 6)):
            changes = (self._node, self._node, self._node, self._types, self._references, self._deeper)
            try:
                self._chance.choice(changes)(message)
            except DecodeError:  # deeper than messages can be
                message = self._valid()
        return self._spoiled(message) if self._chance.random() < 0.2 else message

    def _valid(self) -> pb.CheckedExpr:
        while isinstance(made := checked_expression(text_of(self._honest.truth(3))), tuple):
            pass
        copy = pb.CheckedExpr()
        copy.CopyFrom(made)
        return copy

    def _spoiled(self, message: pb.CheckedExpr) -> pb.CheckedExpr:
        data = bytearray(message.SerializeToString(deterministic=True))
        for _ in range(self._chance.randint(1, 4)):
            data[self._chance.randrange(len(data))] = self._chance.randrange(256)
        try:
            return pb.CheckedExpr.FromString(bytes(data))
        except DecodeError:
            return message

    def _node(self, message: pb.CheckedExpr) -> None:
        nodes = list(nodes_of(message.expr))
        node = self._chance.choice(nodes)
        changes: tuple[Callable[[Expr], None], ...] = (
            self._rename, self._rename, self._constant, self._operands, self._collection, self._loop,
            lambda each: self._splice(each, nodes), lambda each: each.ClearField("call_expr"),
            lambda each: setattr(each, "id", self._chance.choice((0, 1, 2, 3, -1, 2**63 - 1))),
        )  # fmt: skip
        self._chance.choice(changes)(node)

    def _rename(self, node: Expr) -> None:
        chance = self._chance
        match node.WhichOneof("expr_kind"):
            case "call_expr":
                node.call_expr.function = chance.choice(FUNCTIONS)
            case "ident_expr":
                node.ident_expr.name = chance.choice(NAMES)
            case "select_expr":
                node.select_expr.field = chance.choice(NAMES)
                node.select_expr.test_only = chance.random() < 0.5
            case _:
                node.ident_expr.name = chance.choice(NAMES)

    def _constant(self, node: Expr) -> None:
        chance = self._chance
        kinds: tuple[Constant, ...] = (
            Constant(string_value=chance.choice(TEXTS)),
            Constant(bytes_value=chance.choice((b"", b"\0", b"\xff", b"a" * 9_000))),
            Constant(int64_value=chance.choice(INTEGERS)),
            Constant(uint64_value=chance.choice((0, 1, 2**64 - 1))),
            Constant(double_value=chance.choice((0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf")))),
            Constant(bool_value=chance.random() < 0.5),
            Constant(null_value=0),  # type: ignore[arg-type]
            Constant(),
        )
        node.const_expr.CopyFrom(chance.choice(kinds))

    def _operands(self, node: Expr) -> None:
        call = node.call_expr
        match self._chance.randrange(4):
            case 0 if call.args:
                del call.args[self._chance.randrange(len(call.args))]
            case 1:
                self._constant(call.args.add())
            case 2:
                self._constant(call.target)
            case _:
                call.ClearField("target")

    def _collection(self, node: Expr) -> None:
        copy = Expr()
        copy.CopyFrom(node)
        if self._chance.random() < 0.5:
            node.list_expr.elements.append(copy)
            if self._chance.random() < 0.3:
                node.list_expr.optional_indices.append(self._chance.choice((0, 5, -1)))
            return
        entry = node.struct_expr.entries.add(value=copy)
        self._constant(entry.map_key)
        if self._chance.random() < 0.3:
            node.struct_expr.message_name = self._chance.choice(("google.protobuf.Any", "request", ""))
        if self._chance.random() < 0.2:
            entry.field_key = "type_url"

    def _loop(self, node: Expr) -> None:
        copy = Expr()
        copy.CopyFrom(node)
        loop = Expr.Comprehension(iter_var="x", accu_var="@result", iter_range=copy, accu_init=copy, result=copy)
        loop.loop_condition.const_expr.bool_value = True
        node.comprehension_expr.CopyFrom(loop)

    def _splice(self, node: Expr, nodes: list[Expr]) -> None:
        copy = Expr()
        copy.CopyFrom(self._chance.choice(nodes))
        node.CopyFrom(copy)

    def _deeper(self, message: pb.CheckedExpr) -> None:
        for _ in range(self._chance.choice((1, 3, 30, 45))):
            copy = Expr()
            copy.CopyFrom(message.expr)
            message.expr.Clear()
            message.expr.id = copy.id
            message.expr.call_expr.function = "!_"
            message.expr.call_expr.args.append(copy)

    def _types(self, message: pb.CheckedExpr) -> None:
        number = self._chance.choice([*sorted(message.type_map), 0, 99])
        message.type_map[number].primitive = self._chance.choice((pb.Type.BOOL, pb.Type.STRING, pb.Type.INT64))

    def _references(self, message: pb.CheckedExpr) -> None:
        reference = message.reference_map[self._chance.choice([*sorted(message.reference_map), 0, 99])]
        match self._chance.randrange(3):
            case 0:
                reference.name = self._chance.choice(NAMES)
            case 1:
                reference.overload_id.append(self._chance.choice(("add_string", "equals", "size_string", "")))
            case _:
                reference.value.bool_value = True


def nodes_of(expr: Expr) -> Iterator[Expr]:
    """Return every part of an expression."""
    yield expr
    call, select = expr.call_expr, expr.select_expr
    parts: list[Any] = [*call.args, *expr.list_expr.elements]
    parts += [call.target] if call.HasField("target") else []
    parts += [select.operand] if select.HasField("operand") else []
    for entry in expr.struct_expr.entries:
        parts += [entry.map_key] if entry.HasField("map_key") else []
        parts += [entry.value] if entry.HasField("value") else []
    for each in parts:
        yield from nodes_of(each)
