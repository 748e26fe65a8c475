"""An evaluator for a small part of CEL, written from the language's definition and nothing else.

An expression is a nested tuple. Failures are values that && and || may absorb.
"""

from typing import Any, Final, TypeAlias

Expr: TypeAlias = tuple[Any, ...]


class Failure:
    """The expression has no value."""


FAILURE: Final = Failure()


def value_of(expr: Expr, identity: dict[str, Any]) -> Any:
    """Return the value of an expression."""
    match expr:
        case ("const", value):
            return value
        case ("path", *keys):
            return follow(identity, keys)
        case ("has", *keys):
            holder = follow(identity, keys[:-1])
            return keys[-1] in holder if isinstance(holder, dict) else FAILURE
        case ("!", operand):
            value = value_of(operand, identity)
            return not value if isinstance(value, bool) else FAILURE
        case ("&&" | "||" as operator, left, right):
            return joined(operator == "||", value_of(left, identity), value_of(right, identity))
        case (operator, left, right):
            one, other = value_of(left, identity), value_of(right, identity)
            return FAILURE if one is FAILURE or other is FAILURE else compared(operator, one, other)
        case _:
            raise AssertionError(expr)


def joined(decides: bool, left: object, right: object) -> object:
    """Join two values: one that decides wins, even over a failure."""
    if left is decides or right is decides:
        return decides
    return not decides if isinstance(left, bool) and isinstance(right, bool) else FAILURE


def follow(value: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return FAILURE
        value = value[key]
    return value


def compared(operator: str, one: Any, other: Any) -> Any:
    match operator:
        case "==":
            return equal(one, other)
        case "!=":
            return not equal(one, other)
        case "startsWith":
            return one.startswith(other) if isinstance(one, str) and isinstance(other, str) else FAILURE
        case "in" if isinstance(other, list):
            return any(equal(one, each) for each in other)
        case "in" if isinstance(other, dict) and isinstance(one, str | bool | int | float):
            # Only these can be keys at all; ours are strings.
            return one in other
    return FAILURE


def equal(one: Any, other: Any) -> bool:
    """Compare as CEL does: other types are unequal, and a bool is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def text_of(expr: Expr) -> str:
    """Write an expression as CEL. What could be of an unfit type is made dyn, which the checker takes for any."""
    match expr:
        case ("const", value):
            return literal(value)
        case ("path" | "has" as kind, *keys):
            path = ".".join(["identity", *keys])
            return path if kind == "path" else f"has({path})"
        case ("!", operand):
            return f"!({text_of(operand)})"
        case ("startsWith", left, right):
            return f"(dyn({text_of(left)})).startsWith(dyn({text_of(right)}))"
        case ("&&" | "||" as operator, left, right):
            return f"(({text_of(left)}) {operator} ({text_of(right)}))"
        case (operator, left, right):
            return f"(dyn({text_of(left)}) {operator} dyn({text_of(right)}))"
        case _:
            raise AssertionError(expr)


def literal(value: object) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return "'" + "".join(f"\\U{ord(each):08x}" for each in value) + "'"
        case list():
            return "[" + ", ".join(f"dyn({literal(each)})" for each in value) + "]"
        case int() | float():
            return repr(float(value))
        case _:
            raise AssertionError(value)
