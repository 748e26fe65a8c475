"""Expressions about calls at random, and what they come to by the language's definition.

An expression is a nested tuple. Failures are values that ``&&`` and ``||`` may absorb.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Final, TypeAlias

from tests.support.cel.reference import FAILURE, joined

Expr: TypeAlias = tuple[Any, ...]
Values: TypeAlias = Mapping[str, Any]
"""What is known of a call, by dotted names; the headers are a mapping."""

TEXTS: Final = ("", "a", "ab", "B", "/s/m", "é", "𐍈a", "a b", '"', "\\", "\n")
NUMBERS: Final = (0, 1, 2, 3, 7, 443, 4711, 2**31, 2**63 - 1)
HEADERS: Final = ("a", "b", "x_c")
PATHS: Final = ("request.path", "request.host", "request.method", "source.ip", "request.query")
FUNCTIONS: Final = ("startsWith", "endsWith", "contains")
COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_LIMIT: Final = 2**63


class Expressions:
    """Makes expressions and values; the same number makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311 (the same cases every time)

    def values(self) -> Values:
        chance = self.chance
        known: dict[str, Any] = {name: chance.choice(TEXTS) for name in PATHS if chance.random() < 0.8}
        known["request.headers"] = {name: chance.choice(TEXTS) for name in HEADERS if chance.random() < 0.6}
        known["source.port"] = chance.choice(NUMBERS)
        return known

    def truth(self, depth: int = 4) -> Expr:
        """Return an expression that is a bool."""
        match self.chance.randrange(10) if depth else 9:
            case 0 | 1:
                return ("&&", self.truth(depth - 1), self.truth(depth - 1))
            case 2:
                return ("||", self.truth(depth - 1), self.truth(depth - 1))
            case 3:
                return ("!", self.truth(depth - 1))
            case _:
                return self._question(depth)

    def _question(self, depth: int) -> Expr:
        chance = self.chance
        match chance.randrange(6):
            case 0:
                return (chance.choice(("has", "known")), chance.choice(HEADERS))
            case 1:
                return (chance.choice(FUNCTIONS), self._text(), self._text())
            case 2:
                return ("in", self._text(), tuple(self._text() for _ in range(chance.randrange(4))))
            case 3 | 4:
                return (chance.choice(COMPARISONS), self._number(depth), self._number(depth))
            case _:
                return (chance.choice(COMPARISONS), self._text(), self._text())

    def _text(self) -> Expr:
        chance = self.chance
        match chance.randrange(3):
            case 0:
                return ("const", chance.choice(TEXTS))
            case 1:
                return ("path", chance.choice(PATHS))
            case _:
                return ("header", chance.choice(HEADERS))

    def _number(self, depth: int) -> Expr:
        chance = self.chance
        match chance.randrange(6) if depth else chance.randrange(3):
            case 0:
                return ("const", chance.choice(NUMBERS) * chance.choice((1, 1, -1)))
            case 1:
                return ("path", "source.port")
            case 2:
                return ("size", self._text())
            case 3:
                return ("-", self._number(depth - 1))
            case _:
                return (chance.choice("+-*/%"), self._number(depth - 1), self._number(depth - 1))


# --- The language's definition


def value_of(expr: Expr, values: Values) -> Any:
    """Return the value of an expression."""
    match expr:
        case ("const" | "path" | "header" | "has" | "known" as kind, name):
            return _read(kind, name, values)
        case ("&&" | "||" as operator, left, right):
            return joined(operator == "||", value_of(left, values), value_of(right, values))
        case ("in", wanted, several):
            found = [value_of(each, values) for each in (wanted, *several)]
            return FAILURE if FAILURE in found else found[0] in found[1:]
        case (operator, *operands):
            found = [value_of(each, values) for each in operands]
            return FAILURE if FAILURE in found else _applied(operator, *found)
        case _:
            raise AssertionError(expr)


def _read(kind: str, name: Any, values: Values) -> Any:
    headers = values["request.headers"]
    match kind:
        case "const":
            return name
        case "path":
            return values.get(name, FAILURE)
        case "header":
            return headers.get(name, FAILURE)
        case _:
            return name in headers


def _applied(operator: str, one: Any, *others: Any) -> Any:
    match operator, others:
        case "size", ():
            return len(one)
        case "!", ():
            return not one
        case "-", ():
            return _whole(-one)
        case (("+" | "-" | "*" | "/" | "%"), (other,)):
            return _calculated(operator, one, other)
        case _, (other,):
            return _compared(operator, one, other)
        case _:
            raise AssertionError(operator)


def _calculated(operator: str, one: int, other: int) -> Any:
    if operator in "/%" and other == 0:
        return FAILURE
    quotient = 0 if operator not in "/%" else abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    if operator == "%":
        # The smallest number by -1 has no quotient, and so no rest.
        return FAILURE if _whole(quotient) is FAILURE else one - other * quotient
    return _whole({"+": one + other, "-": one - other, "*": one * other, "/": quotient}[operator])


def _whole(number: int) -> Any:
    return number if -_LIMIT <= number < _LIMIT else FAILURE


def _compared(operator: str, one: Any, other: Any) -> bool:
    match operator:
        case "==" | "!=":
            return bool(one == other) == (operator == "==")
        case "<" | "<=":
            return bool(one < other or (operator == "<=" and one == other))
        case ">" | ">=":
            return bool(one > other or (operator == ">=" and one == other))
        case "startsWith":
            return bool(one.startswith(other))
        case "endsWith":
            return bool(one.endswith(other))
        case "contains":
            return other in one
        case _:
            raise AssertionError(operator)


# --- As text


def text_of(expr: Expr) -> str:
    """Write an expression as CEL."""
    match expr:
        case ("const" | "path" | "header" | "has" | "known" as kind, name):
            return _leaf(kind, name)
        case ("in", wanted, several):
            return f"({text_of(wanted)} in [{', '.join(map(text_of, several))}])"
        case (function, left, right) if function in FUNCTIONS:
            return f"{text_of(left)}.{function}({text_of(right)})"
        case (operator, operand):
            return f"{operator}({text_of(operand)})"
        case (operator, left, right):
            return f"({text_of(left)} {operator} {text_of(right)})"
        case _:
            raise AssertionError(expr)


def _leaf(kind: str, name: Any) -> str:
    match kind:
        case "header":
            return f'request.headers["{name}"]'
        case "known":
            return f'("{name}" in request.headers)'
        case "has":
            return f"has(request.headers.{name})"
        case "const" if isinstance(name, str):
            return '"' + "".join(f"\\U{ord(each):08x}" for each in name) + '"'
        case _:
            return str(name)
