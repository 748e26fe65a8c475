"""Converts received syntax trees to ours, and accepts only what the language has and we allow."""

import math
import re
from collections.abc import Iterable
from typing import Any, Final

from cel.expr import checked_pb2, syntax_pb2
from cel.expr.syntax_pb2 import Expr

from authplane.cel.syntax.tree import Call, Const, Entries, Has, Ident, Items, Literal, Node, Select, Unsigned, path_of
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.core.problems import Problems, printable
from authplane.core.text import shorten

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKENS: Final = frozenset({"false", "in", "null", "true"})
_DEEPEST: Final = 40
_ARITY: Final = {"!_": 1, "-_": 1, "_?_:_": 3}
"""Of operators; all others take two."""


def parse_expression(message: checked_pb2.CheckedExpr, vocabulary: Vocabulary, problems: Problems) -> Node | None:
    """Read the tree of an expression; None is a problem."""
    return _Reader(message, vocabulary, problems).node(message.expr)


class _Reader:
    """Reads one expression, and reports every part that is not allowed."""

    def __init__(self, message: checked_pb2.CheckedExpr, vocabulary: Vocabulary, problems: Problems) -> None:
        self._references = message.reference_map
        self._vocabulary = vocabulary
        self._problems = problems
        self._depth = 0

    def node(self, expr: Expr) -> Node | None:
        with self._problems.at(expr.WhichOneof("expr_kind") or "expr_kind"):
            if self._depth == _DEEPEST - 1:
                self._too_deep()
                return None
            self._depth += 1
            found = self._kind(expr)
            self._depth -= 1
            return found

    def _kind(self, expr: Expr) -> Node | None:
        match expr.WhichOneof("expr_kind"):
            case "const_expr":
                return self._const(expr.const_expr)
            case "ident_expr":
                return self._named(expr, self._ident(expr.ident_expr.name))
            case "select_expr":
                return self._named(expr, self._select(expr.select_expr))
            case "call_expr":
                return self._call(expr)
            case _:
                return self._collection(expr)

    def _collection(self, expr: Expr) -> Items | Entries | None:
        match expr.WhichOneof("expr_kind"):
            case "list_expr":
                return self._list(expr.list_expr)
            case "struct_expr":
                return self._struct(expr.struct_expr)
            case "comprehension_expr":
                self._refuse("Loops such as all() and exists() are not supported. Rewrite the expression without them.")
            case _:
                self._refuse("The expression is empty. Set one of the fields of expr_kind.")
        return None

    def _const(self, constant: syntax_pb2.Constant) -> Const | None:
        value: Literal
        match constant.WhichOneof("constant_kind"):
            case "null_value":
                value = None
            case "uint64_value":
                value = Unsigned(constant.uint64_value)
            case "double_value" if not math.isfinite(constant.double_value):
                self._refuse("The number is not finite. Use a finite number.")
                return None
            case "bool_value" | "int64_value" | "double_value" | "string_value" | "bytes_value" as kind:
                value = getattr(constant, kind)
            case _:
                self._refuse(
                    "The constant has an unsupported type. Use null, bool, int, uint, double, string or bytes."
                )
                return None
        return Const(**_PLACE, value=value)

    def _ident(self, name: str) -> Node | None:
        """Read a name; some checkers write ``request.path`` as one."""
        root, *members = name.removeprefix(".").split(".")
        if root not in self._vocabulary.roots or not all(map(_NAME.fullmatch, members)):
            known = ", ".join(sorted(self._vocabulary.roots))
            self._problems.add(
                "ExpressionUndeclared",
                f"{printable(shorten(name, 80))!r} is not defined. Supported variables: {known}.",
            )
            return None
        if self._depth + len(members) >= _DEEPEST:
            self._too_deep()
            return None
        found: Node = Ident(**_PLACE, name=root)
        for each in members:
            found = Select(**_PLACE, operand=found, field=each)
        return found

    def _select(self, select: Expr.Select) -> Node | None:
        with self._problems.at("operand"):
            operand = self.node(select.operand)
        if operand is None:
            return None
        field = select.field
        if _NAME.fullmatch(field) and field not in _TOKENS:
            kind = Has if select.test_only else Select
            return kind(**_PLACE, operand=operand, field=field)
        key = Const(**_PLACE, value=field)
        if select.test_only:
            return Call(**_PLACE, function="@in", target=None, args=(key, operand))
        return Call(**_PLACE, function="_[_]", target=None, args=(operand, key))

    def _named(self, expr: Expr, node: Node | None) -> Node | None:
        """Check the reference of a name."""
        reference = self._references.get(expr.id)
        if node is None or reference is None:
            return node
        path = ".".join(path_of(node) or ())
        if reference.name.removeprefix(".") != path or reference.overload_id or reference.HasField("value"):
            self._problems.add("ExpressionReference", _misleading(path))
            return None
        return node

    def _call(self, expr: Expr) -> Call | None:
        call = expr.call_expr
        function = call.function
        if function not in self._vocabulary.functions:
            with self._problems.at("function"):
                said = f"{printable(shorten(function, 80))!r} is not supported. Rewrite the expression without it."
                self._refuse(said)
        else:
            self._check_reference(function, self._references.get(expr.id))
            self._check_form(call)
        target = None
        if call.HasField("target"):
            with self._problems.at("target"):
                target = self.node(call.target)
        args = self._nodes("args", call.args)
        if args is None or (target is None and call.HasField("target")):
            return None
        return Call(**_PLACE, function=function, target=target, args=args)

    def _check_reference(self, function: str, reference: checked_pb2.Reference | None) -> None:
        if reference is None:
            return
        wrong = [each for each in reference.overload_id if not _overload(function).fullmatch(each)]
        if wrong or reference.HasField("value") or reference.name not in {"", function}:
            self._problems.add("ExpressionReference", _misleading(function))

    def _check_form(self, call: Expr.Call) -> None:
        operator = not _NAME.fullmatch(call.function)
        if operator and (call.HasField("target") or len(call.args) != _ARITY.get(call.function, 2)):
            self._refuse(f"{call.function} has the wrong operands. Compile the expression again.")

    def _list(self, items: Expr.CreateList) -> Items | None:
        if items.optional_indices:
            self._refuse("Optional elements are not supported. Remove them.")
            return None
        values = self._nodes("elements", items.elements)
        return None if values is None else Items(**_PLACE, values=values)

    def _struct(self, struct: Expr.CreateStruct) -> Entries | None:
        if struct.message_name:
            self._refuse("Messages are not supported. Rewrite the expression without them.")
            return None
        pairs = []
        for index, entry in enumerate(struct.entries):
            with self._problems.at("entries", index):
                if entry.optional_entry or not entry.HasField("map_key"):
                    self._refuse("The entry is optional or has no key. Set map_key and remove optional_entry.")
                    return None
                with self._problems.at("map_key"):
                    key = self.node(entry.map_key)
                with self._problems.at("value"):
                    value = self.node(entry.value)
                pairs.append((key, value))
        whole = tuple((key, value) for key, value in pairs if key is not None and value is not None)
        return Entries(**_PLACE, pairs=whole) if len(whole) == len(pairs) else None

    def _nodes(self, field: str, exprs: Iterable[Expr]) -> tuple[Node, ...] | None:
        found = []
        for index, each in enumerate(exprs):
            with self._problems.at(field, index):
                found.append(self.node(each))
        whole = tuple(each for each in found if each is not None)
        return whole if len(whole) == len(found) else None

    def _too_deep(self) -> None:
        self._problems.add("ExpressionTooLarge", "The expression is nested too deeply. Simplify it.")

    def _refuse(self, message: str) -> None:
        self._problems.add("ExpressionNotAllowed", message)


def _misleading(name: str) -> str:
    return f"reference_map resolves {name} to another declaration. Compile the expression again."


_PLACE: Final[dict[str, Any]] = {"id": 0, "at": 0}
"""Before the expression is checked, positions have no meaning."""


def _overload(function: str) -> re.Pattern[str]:
    """Return which overloads of the language's definition a function has."""
    return _OVERLOADS[function]


_OVERLOADS: Final = {
    function: re.compile(overloads)
    for function, overloads in {
        "_&&_": "logical_and", "_||_": "logical_or", "!_": "logical_not", "_==_": "equals", "_!=_": "not_equals",
        "_<_": r"less_(?!equals_)\w+", "_<=_": r"less_equals_\w+",
        "_>_": r"greater_(?!equals_)\w+", "_>=_": r"greater_equals_\w+",
        "_+_": r"add_\w+", "_-_": r"subtract_\w+", "_*_": r"multiply_\w+", "_/_": r"divide_\w+", "_%_": r"modulo_\w+",
        "-_": r"negate_\w+", "_[_]": "index_(list|map)", "@in": "in_(list|map)",
        "size": "size_(string|bytes|list|map)|(string|bytes|list|map)_size",
        "matches": "matches(_string)?", "contains": "contains_string", "startsWith": "starts_with_string",
        "endsWith": "ends_with_string",
        "bool": r"\w+_to_bool", "bytes": r"\w+_to_bytes", "double": r"\w+_to_double", "int": r"\w+_to_int64",
        "uint": r"\w+_to_uint64", "timestamp": r"\w+_to_timestamp", "duration": r"\w+_to_duration",
        "getDate": r"timestamp_to_day_of_month_1_based\w*", "getDayOfMonth": r"timestamp_to_day_of_month\w*",
        "getDayOfWeek": r"timestamp_to_day_of_week\w*", "getDayOfYear": r"timestamp_to_day_of_year\w*",
        "getFullYear": r"timestamp_to_year\w*", "getMonth": r"timestamp_to_month\w*",
        "getHours": r"(timestamp|duration)_to_hours\w*", "getMinutes": r"(timestamp|duration)_to_minutes\w*",
        "getSeconds": r"(timestamp|duration)_to_seconds\w*",
        "getMilliseconds": r"(timestamp|duration)_to_milliseconds\w*",
    }.items()
}  # fmt: skip
