"""Expressions of policies at random: anything that can be written, also what is of no use."""

from random import Random
from typing import Any, Final

LEAVES: Final = (
    "identity", "identity.a", "identity.l", "identity.m", "request.path", "request.headers", "request.time",
    "request.mcp.params", "1", "1u", "1.5", "-1", "'a'", "b'a'", "null", "true", "false", "[]", "{}", "timestamp(0)",
    "duration('1s')", "9223372036854775807", "0.0", "type(1)", "int", "''", "unknown",
)  # fmt: skip
OPERATORS: Final = ("==", "!=", "<", "<=", ">", ">=", "&&", "||", "+", "-", "*", "/", "%", "in")
CONVERSIONS: Final = (
    "size", "int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration", "type", "dyn",
)  # fmt: skip
QUESTIONS: Final = ("startsWith", "endsWith", "contains", "matches")
PARTS: Final = ("size", "getHours", "getFullYear", "getDayOfWeek", "getMilliseconds")
MACROS: Final = ("all", "exists", "exists_one", "filter", "map")
VALUES: Final = (1, "a", None, True, False, [1], [None], {"a": 2}, {"a": None}, 1e300, "")


class Policies:
    """Makes expressions and identities; the same number makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)  # noqa: S311 (the same cases every time)

    def text(self) -> str:
        text = self._text(self._chance.randrange(1, 5), ())
        # Of most texts the checker would say that they are no bool.
        return text if self._chance.random() < 0.3 else f"dyn({text}) == dyn({self._text(1, ())})"

    def identity(self) -> dict[str, Any]:
        chance = self._chance
        found = {"a": chance.choice(VALUES), "l": chance.choices(VALUES, k=3), "m": {"a": chance.choice(VALUES)}}
        return {name: value for name, value in found.items() if chance.random() < 0.9}

    def _text(self, depth: int, names: tuple[str, ...]) -> str:
        chance = self._chance
        if depth <= 0:
            return chance.choice(names) if names and chance.random() < 0.4 else chance.choice(LEAVES)

        def part() -> str:
            inner = self._text(depth - chance.randint(1, 2), names)
            return f"dyn({inner})" if chance.random() < 0.85 else inner

        forms = (
            lambda: f"({part()} {chance.choice(OPERATORS)} {part()})",
            lambda: f"({part()} {chance.choice(OPERATORS)} {part()})",
            lambda: f"{chance.choice('!-')}({part()})",
            lambda: f"[{part()}, {part()}]",
            lambda: f"{{{part()}: {part()}, {part()}: {part()}}}",
            lambda: f"({part()} ? {part()} : {part()})",
            lambda: f"{part()}[{part()}]",
            lambda: f"{chance.choice(CONVERSIONS)}({part()})",
            lambda: f"{part()}.{chance.choice(QUESTIONS)}({part()})",
            lambda: f"{part()}.{chance.choice(PARTS)}()",
            lambda: f"has({part()}.{chance.choice('ab')})",
            lambda: self._loop(part(), depth, names),
        )
        return chance.choice(forms)()

    def _loop(self, over: str, depth: int, names: tuple[str, ...]) -> str:
        name = f"v{len(names)}"
        return f"{over}.{self._chance.choice(MACROS)}({name}, {self._text(depth - 1, (*names, name))})"
