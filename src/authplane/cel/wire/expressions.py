"""Expressions as protobuf: checked ones to our syntax tree, and the types of a vocabulary for the engine."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from cel.expr import checked_pb2, syntax_pb2
from cel.expr.syntax_pb2 import Expr
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2
from google.protobuf.message import DecodeError

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
from authplane.cel.syntax.vocabulary import Kind, Macro, Vocabulary

PACKAGE: Final = "authplane_vocabulary"
"""The package of the messages that describe namespaces of variables to the checker."""

_RESULT: Final = "@result"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto


def parse_tree(data: bytes) -> Node | None:
    """Read a ``CheckedExpr`` or ``ParsedExpr`` in a serialized ``Any``; None means that it has something unknown."""
    try:
        packed = any_pb2.Any.FromString(data)
        message = (
            checked_pb2.CheckedExpr() if packed.Is(checked_pb2.CheckedExpr.DESCRIPTOR) else syntax_pb2.ParsedExpr()
        )
        if not packed.Unpack(message):
            return None
        return _Reader(dict(message.source_info.positions)).node(message.expr)
    except (DecodeError, _UnknownError):
        return None


def sorted_bytes(data: bytes) -> bytes:
    """Serialize a ``CheckedExpr`` again so that the same expression always has the same bytes."""
    return pack_checked(unpack_checked(data))


def parse_parts(data: bytes, wanted: frozenset[int]) -> dict[int, bytes]:
    """Return expressions, serialized as ``data`` is, for those parts of it whose ids are wanted."""
    checked = unpack_checked(data)
    found: dict[int, bytes] = {}
    waiting = [checked.expr]
    while waiting:
        each = waiting.pop()
        if each.id in wanted:
            part = checked_pb2.CheckedExpr(expr=each, reference_map=checked.reference_map, type_map=checked.type_map)
            found[each.id] = pack_checked(part)
        waiting += below(each)
    return found


def parse_overloads(data: bytes) -> dict[int, frozenset[str]]:
    """Return what the checker found that each call may be, by the ids of the calls."""
    return {number: frozenset(each.overload_id) for number, each in unpack_checked(data).reference_map.items()}


def build_checked(data: bytes) -> checked_pb2.CheckedExpr:
    """Return a checked expression as others read it: to them a namespace is a map, as they do not know our messages."""
    checked = unpack_checked(data)
    for each in checked.type_map.values():
        if each.message_type.startswith(f"{PACKAGE}."):
            each.map_type.key_type.primitive = checked_pb2.Type.STRING
            each.map_type.value_type.dyn.SetInParent()
    return checked


def build_types(vocabulary: Vocabulary) -> descriptor_pool.DescriptorPool:
    """Describe each namespace as a message, so that the checker knows its members and their types."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    for known in (any_pb2, struct_pb2, timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    for namespace in sorted(vocabulary.namespaces):
        message = file.message_type.add(name=message_name(namespace))
        for number, member in enumerate(vocabulary.members(namespace), start=1):
            _add_field(message, number, f"{namespace}.{member}", vocabulary)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def build_timestamp(time: datetime) -> timestamp_pb2.Timestamp:
    """Build a timestamp as the engine takes it inside of other data."""
    message = timestamp_pb2.Timestamp()
    message.FromDatetime(time)
    return message


def message_name(namespace: str) -> str:
    """Return the name of the message that describes a namespace."""
    return namespace.replace(".", "__")


def unpack_checked(data: bytes) -> checked_pb2.CheckedExpr:
    """Read a ``CheckedExpr`` in a serialized ``Any``."""
    checked = checked_pb2.CheckedExpr()
    any_pb2.Any.FromString(data).Unpack(checked)
    return checked


def pack_checked(checked: checked_pb2.CheckedExpr) -> bytes:
    """Serialize a ``CheckedExpr`` in an ``Any``; the same one always has the same bytes."""
    packed = any_pb2.Any()
    packed.Pack(checked, deterministic=True)
    return packed.SerializeToString(deterministic=True)


def below(expr: Expr) -> list[Expr]:
    """Return the parts of an expression; of a loop, what it goes over."""
    match expr.WhichOneof("expr_kind"):
        case "select_expr":
            return [expr.select_expr.operand]
        case "call_expr":
            call = expr.call_expr
            return [*([call.target] if call.HasField("target") else []), *call.args]
        case "list_expr":
            return list(expr.list_expr.elements)
        case "struct_expr":
            return [each for entry in expr.struct_expr.entries for each in (entry.map_key, entry.value)]
        case "comprehension_expr":
            return [expr.comprehension_expr.iter_range]
        case _:
            return []


class _UnknownError(Exception):
    """Raised inside the reader, for a comprehension that no macro makes and for what is not there."""


class _Reader:
    """Reads the nodes of one expression."""

    def __init__(self, positions: dict[int, int]) -> None:
        self._positions = positions

    def node(self, expr: Expr) -> Node:
        place = {"id": expr.id, "at": self._positions.get(expr.id, 0)}
        match expr.WhichOneof("expr_kind"):
            case "const_expr":
                return Const(**place, value=_literal(expr.const_expr))
            case "ident_expr":
                return Ident(**place, name=expr.ident_expr.name)
            case "select_expr":
                select = expr.select_expr
                kind = Has if select.test_only else Select
                return kind(**place, operand=self.node(select.operand), field=select.field)
            case "call_expr":
                call = expr.call_expr
                target = self.node(call.target) if call.HasField("target") else None
                return Call(**place, function=call.function, target=target, args=self._nodes(call.args))
            case "comprehension_expr":
                return self._loop(expr, place)
            case _:
                return self._collection(expr, place)

    def _collection(self, expr: Expr, place: dict[str, int]) -> Items | Entries | Message:
        struct = expr.struct_expr
        kind = expr.WhichOneof("expr_kind")
        if kind == "list_expr":
            return Items(**place, values=self._nodes(expr.list_expr.elements))
        if kind != "struct_expr":
            raise _UnknownError
        if struct.message_name:
            return Message(**place, name=struct.message_name)
        return Entries(
            **place, pairs=tuple((self.node(each.map_key), self.node(each.value)) for each in struct.entries)
        )

    def _nodes(self, exprs: Iterable[Expr]) -> tuple[Node, ...]:
        return tuple(self.node(each) for each in exprs)

    def _loop(self, expr: Expr, place: dict[str, int]) -> Loop:
        loop = expr.comprehension_expr
        macro, test, result = _macro(loop)
        return Loop(
            **place,
            macro=macro,
            variable=loop.iter_var,
            over=self.node(loop.iter_range),
            test=None if test is None else self.node(test),
            result=None if result is None else self.node(result),
        )


def _macro(loop: Expr.Comprehension) -> tuple[Macro, Expr | None, Expr | None]:
    """Recognise what the parser makes of a macro: its test and its result."""
    step = loop.loop_step.call_expr
    match step.function, len(step.args):
        case "_&&_", 2 if _is_result(step.args[0]) and _is_result(loop.result):
            return Macro.ALL, step.args[1], None
        case "_||_", 2 if _is_result(step.args[0]) and _is_result(loop.result):
            return Macro.EXISTS, step.args[1], None
        case "_?_:_", 3 if _is_result(step.args[2]) and not _is_result(loop.result):
            return Macro.EXISTS_ONE, step.args[0], None
        case "_?_:_", 3 if _is_result(step.args[2]):
            added = _added(step.args[1])
            if added.ident_expr.name == loop.iter_var:
                return Macro.FILTER, step.args[0], None
            return Macro.MAP, step.args[0], added
        case "_+_", 2:
            return Macro.MAP, None, _added(loop.loop_step)
        case _:
            raise _UnknownError


def _is_result(expr: Expr) -> bool:
    return expr.ident_expr.name == _RESULT


def _added(step: Expr) -> Expr:
    """Return what ``@result + [it]`` adds."""
    args = step.call_expr.args
    if len(args) != 2 or not _is_result(args[0]) or len(args[1].list_expr.elements) != 1:
        raise _UnknownError
    return args[1].list_expr.elements[0]


def _literal(constant: syntax_pb2.Constant) -> Literal:
    match constant.WhichOneof("constant_kind"):
        case "null_value":
            return None
        case "uint64_value":
            return Unsigned(constant.uint64_value)
        case "bool_value" | "int64_value" | "double_value" | "string_value" | "bytes_value" as kind:
            value: Literal = getattr(constant, kind)
            return value
        case _:
            raise _UnknownError


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, vocabulary: Vocabulary) -> None:
    member = name.rpartition(".")[2]
    variable = vocabulary.by_name.get(name)
    if variable is None:
        _add_message(message, number, member, f".{PACKAGE}.{message_name(name)}")
        return
    match variable.kind:
        case Kind.STRING:
            message.field.add(name=member, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        case Kind.BOOL:
            message.field.add(name=member, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_BOOL)
        case Kind.INT:
            message.field.add(name=member, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_INT64)
        case Kind.DOUBLE:
            message.field.add(name=member, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_DOUBLE)
        case Kind.TIMESTAMP:
            _add_message(message, number, member, ".google.protobuf.Timestamp")
        case Kind.MEMBERS:
            _add_message(message, number, member, ".google.protobuf.Struct")
        case Kind.TEXTS:
            _add_texts(message, number, member)


def _add_message(message: descriptor_pb2.DescriptorProto, number: int, member: str, type_name: str) -> None:
    message.field.add(
        name=member, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE, type_name=type_name
    )


def _add_texts(message: descriptor_pb2.DescriptorProto, number: int, member: str) -> None:
    """Add a map from strings to strings: protobuf wants an entry message of this very name."""
    entry = message.nested_type.add(name=f"{member.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for index, part in enumerate(("key", "value"), start=1):
        entry.field.add(name=part, number=index, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
    message.field.add(
        name=member,
        number=number,
        label=_FIELD.LABEL_REPEATED,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".{PACKAGE}.{message.name}.{entry.name}",
    )
