"""Makes ``string()`` write whole numbers as whole numbers.

Every number of a request or a token is a double. The engine's own ``string()`` switches to an exponent at 10^6
(``1.234567e+06``), which no author of a policy expects of an id. So the program that runs has a few more nodes than
the checked one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from cel.expr import checked_pb2
from cel.expr.syntax_pb2 import Expr

from authplane.cel.wire.expressions import below, pack_checked, unpack_checked

NUMBER: Final = "number"
"""The name of the argument of ``string()`` in `WRITTEN`."""
WRITTEN: Final = (
    "type(number) == double && number > -9223372036854775808.0 && number < 9223372036854775808.0"
    " && double(int(number)) == number ? string(int(number)) : string(number)"
)
"""What ``string(number)`` is, in words of the engine."""
_OVERLOAD: Final = "double_to_string"
_VARIABLE: Final = "@number"


def write_whole_numbers(checked: bytes, written: Callable[[], bytes]) -> bytes:
    """Replace each ``string()`` whose argument may be a double; ``written`` returns the checked form of `WRITTEN`."""
    if _OVERLOAD.encode() not in checked:
        return checked
    message, template = unpack_checked(checked), unpack_checked(written())
    calls = [each for each in _walk(message.expr) if _may_be_double(message, each)]
    # Those inside of others come later, and are replaced before.
    for call in reversed(calls):
        _replace(call, message, template)
    return pack_checked(message)


def _may_be_double(message: checked_pb2.CheckedExpr, expr: Expr) -> bool:
    is_call = expr.WhichOneof("expr_kind") == "call_expr" and expr.call_expr.function == "string"
    return is_call and expr.id in message.reference_map and _OVERLOAD in message.reference_map[expr.id].overload_id


def _replace(call: Expr, message: checked_pb2.CheckedExpr, template: checked_pb2.CheckedExpr) -> None:
    """Turn ``string(x)`` into the template with ``x`` for its variable: a loop over nothing that begins with ``x``."""
    argument = Expr()
    argument.CopyFrom(call.call_expr.args[0])
    offset = max(each.id for each in _walk(message.expr)) + 1
    result = _numbered(template, message, offset)
    fresh = offset + max(each.id for each in _walk(template.expr))
    bound = call.comprehension_expr
    bound.iter_var, bound.accu_var = "@unused", _VARIABLE
    bound.iter_range.CopyFrom(Expr(id=fresh + 1, list_expr=Expr.CreateList()))
    bound.accu_init.CopyFrom(argument)
    bound.loop_condition.id = fresh + 2
    bound.loop_condition.const_expr.bool_value = False
    bound.loop_step.CopyFrom(Expr(id=fresh + 3, ident_expr=Expr.Ident(name=_VARIABLE)))
    bound.result.CopyFrom(result)
    del message.reference_map[call.id]


def _numbered(template: checked_pb2.CheckedExpr, message: checked_pb2.CheckedExpr, offset: int) -> Expr:
    """Return the template under other ids, and tell the expression what the checker found of them."""
    made = Expr()
    made.CopyFrom(template.expr)
    for each in _walk(made):
        if each.id in template.reference_map:
            message.reference_map[each.id + offset].CopyFrom(template.reference_map[each.id])
        if each.id in template.type_map:
            message.type_map[each.id + offset].CopyFrom(template.type_map[each.id])
        if each.ident_expr.name == NUMBER:
            each.ident_expr.name = _VARIABLE
            message.reference_map[each.id + offset].name = _VARIABLE
        each.id += offset
    return made


def _walk(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all below it, parents first."""
    waiting = [expr]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += _parts(each)


def _parts(expr: Expr) -> list[Expr]:
    if expr.WhichOneof("expr_kind") != "comprehension_expr":
        return below(expr)
    loop = expr.comprehension_expr
    return [*below(expr), loop.accu_init, loop.loop_condition, loop.loop_step, loop.result]
