"""Expressions for rules: fixed ones about everything, and generated ones that calculate with claims."""

from functools import cache
from random import Random
from typing import Any, Final

from tests.differential.model import FIRST, HOST

from authplane.cel.check.program import Program, compile_expression
from authplane.cel.envoy.translate import Claims, Condition, translate
from authplane.cel.syntax.vocabulary import ACCESS_POLICY
from authplane.core.envoy_releases import CURRENT

EXPRESSIONS: Final = (
    "true",
    'request.mcp.tool_name == "add"',
    'request.mcp.tool_name.startsWith("read_")',
    'request.mcp.tool_name in ["add", "wipe"]',
    'request.mcp.method == "tools/call"',
    'request.mcp.method.startsWith("resources/")',
    'request.mcp.method != "tools/call"',
    '!(request.mcp.tool_name == "wipe")',
    'has(request.mcp.tool_name) && request.mcp.tool_name != "wipe"',
    "has(request.mcp.params.a) && request.mcp.params.a == 1",
    "request.mcp.params.a < 10",
    "int(request.mcp.params.a) % 2 == 1",
    "double(request.mcp.params.a) * 2.0 > 3.0",
    'string(int(request.mcp.params.a)) == "1"',
    "type(request.mcp.params.a) == string",
    "request.mcp.params.a in [1, 11]",
    'request.mcp.params.path.matches("^/tmp/[a-z]+$")',
    "size(request.mcp.params.path) < 10",
    "!has(request.mcp.params.b)",
    "request.mcp.params.a == identity.level",
    'has(request.mcp.params.list) && request.mcp.params.list.exists(x, x == "x")',
    "has(request.mcp.params.list) && size(request.mcp.params.list) > 1",
    'has(request.mcp.params.deep) && request.mcp.params.deep.x.y == "z"',
    'has(identity.group) && identity.group == "admin"',
    'identity.group == "admin"',
    'identity["group"] in ["admin", "ops"]',
    '!(identity.group == "blocked")',
    'identity.group < "b"',
    "identity.group == null",
    "size(identity.group) == 5",
    'identity.sub == "ann"',
    'identity.aud == "shop"',
    '"shop" in identity.aud',
    "has(identity.tools) && request.mcp.tool_name in identity.tools",
    'identity.tools[0] == "add"',
    "identity.tools[int(identity.level) - 4] == request.mcp.tool_name",
    'identity.tools == ["add", "wipe"]',
    'identity.place.city == "Bonn"',
    'has(identity.place.city) && identity.place["city"] != "Bonn"',
    '"city" in identity.place',
    "identity.flag",
    "bool(identity.flag)",
    'identity.level > 3 ? identity.sub == "ann" : identity.group == "admin"',
    "identity.level > 3",
    "identity.level == 4",
    "identity.level in [4.0, 1234567.0]",
    "identity.level >= 9007199254740992",
    "type(identity.level) == int",
    "type(identity.level) == double",
    "int(identity.level) == identity.level",
    "uint(identity.level) > 3u",
    "-identity.level < 0.0",
    "identity.level * 2.0 == 7.0",
    "identity.level - 1.0 < 3.0",
    "string(identity.org) == string(identity.owner_org)",
    'string(identity.org) == "1234567"',
    "string(int(identity.org)) == string(int(identity.owner_org))",
    'string(int(identity.org)) == "1234567"',
    'string(int(identity.org)) + "x" == "1234567x"',
    "string(double(identity.org)) == string(double(identity.owner_org))",
    "int(identity.org) == int(identity.owner_org)",
    "double(identity.org) == double(identity.owner_org)",
    "int(identity.until) > int(request.time)",
    "double(identity.until) > 2000000000.5",
    "timestamp(int(identity.until)) > request.time",
    'timestamp(int(identity.until)) > timestamp("2090-01-01T00:00:00Z")',
    "timestamp(identity.until) > request.time",
    "timestamp(identity.until).getFullYear() > 2040",
    'request.time + duration(identity.until) > request.time + duration("1h")',
    'request.time + duration("24h") > timestamp("2020-01-01T00:00:00Z")',
    'request.time - timestamp("2020-01-01T00:00:00Z") > duration("1000h")',
    "request.time.getFullYear() >= int(identity.level)",
    f'identity.iss == "{FIRST}"',
    'has(identity.spiffe_id) && identity.spiffe_id.endsWith("/agent")',
    'has(identity.service_account) && identity.service_account == "agent"',
    'request.path == "/mcp"',
    'request.path.startsWith("/mcp")',
    'request.query.contains("admin")',
    f'request.host == "{HOST}"',
    f'request.host.endsWith("{HOST}")',
    'request.method == "POST"',
    'request.method in ["GET", "DELETE"]',
    '"x-team" in request.headers && request.headers["x-team"] == "red"',
    'request.headers["x-team"] != "blue"',
    'request.headers.exists(name, name == "x-admin")',
    '"mcp-session-id" in request.headers',
    'request.headers["content-type"] == "application/json"',
    'request.headers["user-agent"].contains("agent")',
    'request.time > timestamp("2020-01-01T00:00:00Z")',
    "request.time.getFullYear() < 2020",
    'request.mcp.tool_name == "add" || identity.group == "admin"',
    'request.mcp.tool_name + "x" == "addx"',
)  # fmt: skip
MISTAKEN: Final = ("1 == 1.0", "request.body.x == 1", "request.mcp.tool_name ==", "identity", '"a"')
"""A policy with one of these denies what it protects."""
WIDE: Final = ("true", 'request.method == "POST"', '!request.path.startsWith("/other")')
"""What Gateways let through, as long as nobody else has a say."""

NUMBERS: Final[tuple[Any, ...]] = (
    0, 1, -1, 3, 4, 3.5, 0.1, 0.1 + 0.2, -2.5, 999_999, 1_000_000, 1_000_001, 1_234_567, 12_345_678.9, 1e6, 1e15, 1e16,
    2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63, 2**64, -(2**63), 1e18, 1e19, 1e300, 5e-324,
    253_402_300_799, 253_402_300_800, 253_402_300_799.5, 4_102_444_800, -62_135_596_801, "4", "3.5", "1e3", "0x10",
    " 7", "7 ", "", "1_000", "9223372036854775807", "9223372036854775808", "NaN", "inf", "1234567", True, None, [4],
)  # fmt: skip
"""Values of claims about which conversions and calculations may differ: large, broken, far away, or no numbers."""
NUMBERED: Final = ("level", "org", "owner_org", "until")
"""Claims that are numbers more often than not."""
_WHOLE: Final = (
    "0", "1", "3", "7", "1000000", "1000001", "1234567", "2147483648", "9007199254740991", "9007199254740992",
    "253402300799", "253402300800", "-1",
)  # fmt: skip
_BROKEN: Final = ("0.0", "0.5", "3.5", "1e6", "1234567.0", "9007199254740993.0", "1e300", "-2.5", "253402300800.0")
_COMPARED: Final = ("==", "!=", "<", "<=", ">", ">=")


class Calculations:
    """Writes expressions that convert claims and calculate with them."""

    def __init__(self, chance: Random) -> None:
        self._random = chance

    def text(self) -> str:
        """Return an expression without a type error."""
        while True:
            kind = self._random.choice(("int", "double"))
            sides = [self._value(kind, 2), self._value(self._random.choice((kind, "int")), 2)]
            made = f" {self._random.choice(_COMPARED)} ".join(sides)
            if self._random.random() < 0.1:
                made = f"string({sides[0]}) {self._random.choice(('==', '<'))} string({sides[1]})"
            if compiles(made):
                return made

    def _value(self, kind: str, depth: int) -> str:
        choice, chance = self._random.random(), self._random
        if depth == 0 or choice < 0.2:
            return chance.choice(_WHOLE if kind == "int" else _BROKEN) if chance.random() < 0.5 else self._read(kind)
        if choice < 0.5:
            return self._read(kind)
        signs = ("+", "-", "*", "/", "%") if kind == "int" else ("+", "-", "*", "/")
        return f"({self._value(kind, depth - 1)} {chance.choice(signs)} {self._value(kind, depth - 1)})"

    def _read(self, kind: str) -> str:
        claim = f"identity.{self._random.choice(NUMBERED)}"
        if kind == "double":
            return self._random.choice((claim, f"double({claim})", f"double(int({claim}))"))
        # Not with the time: it goes on between two answers, and a remainder of it is another one every second.
        return self._random.choice((f"int({claim})", f"int({claim})", f"int(double({claim}))"))


@cache
def compiles(text: str) -> bool:
    """Tell whether an expression has no error."""
    return isinstance(compile_expression(text, ACCESS_POLICY), Program)


@cache
def is_native(text: str) -> bool:
    """Tell whether Envoy decides an expression itself, about whoever comes with a token."""
    program = compile_expression(text, ACCESS_POLICY)
    return isinstance(program, Program) and isinstance(translate(program, Claims("x"), CURRENT), Condition)
