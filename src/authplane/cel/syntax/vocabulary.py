"""The vocabulary of expressions: typed variables, functions and macros, one set for each context."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

from authplane.core.values import dataclass


class Kind(StrEnum):
    """The type of a variable. Numbers of JSON are doubles."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"
    TEXTS = "map(string, string)"
    MEMBERS = "map(string, dyn)"
    """Keys and the types of their values are known only when a request comes."""


MAPS: Final = frozenset({Kind.TEXTS, Kind.MEMBERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One thing that expressions may read."""

    name: str
    """Dotted: ``request.mcp.tool_name``. The part before a dot is not a value, and cannot be a variable too."""
    kind: Kind
    about: str


class Macro(StrEnum):
    """Parts of the language that look like functions."""

    HAS = "has"
    ALL = "all"
    EXISTS = "exists"
    EXISTS_ONE = "exists_one"
    MAP = "map"
    FILTER = "filter"


OPERATORS: Final = frozenset({
    "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_&&_", "_||_", "!_", "_?_:_", "_[_]",
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_",
})  # fmt: skip
"""Their names in a syntax tree."""

FUNCTIONS: Final = OPERATORS | frozenset({
    "size", "startsWith", "endsWith", "contains", "matches",
    "type", "dyn", "bool", "bytes", "double", "int", "string", "uint", "timestamp", "duration",
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
})  # fmt: skip
"""The operators and functions of the language's definition."""

TYPES: Final = frozenset({
    "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint",
    "google.protobuf.Timestamp", "google.protobuf.Duration",
})  # fmt: skip
"""The types that an expression may compare with ``type(x)``."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The variables, functions and macros of one context. Equal ones have equal programs."""

    variables: tuple[Variable, ...]
    functions: frozenset[str] = FUNCTIONS
    macros: frozenset[Macro] = frozenset(Macro)
    hints: tuple[tuple[str, str], ...] = ()
    """Hints for names that users try and that do not exist."""

    @cached_property
    def by_name(self) -> Mapping[str, Variable]:
        """The variables by their dotted names."""
        return MappingProxyType({each.name: each for each in self.variables})

    @cached_property
    def roots(self) -> frozenset[str]:
        """The first names of all variables."""
        return frozenset(each.name.partition(".")[0] for each in self.variables)

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """The prefixes of names: ``request`` and ``request.mcp``."""
        parts = (each.name.split(".") for each in self.variables)
        return frozenset(".".join(each[:size]) for each in parts for size in range(1, len(each)))

    def below(self, namespace: str) -> tuple[Variable, ...]:
        """Return the variables whose names begin with a namespace."""
        return tuple(each for each in self.variables if each.name.startswith(f"{namespace}."))

    def members(self, namespace: str) -> tuple[str, ...]:
        """Return what may follow a namespace and a dot, sorted."""
        start = len(namespace) + 1
        return tuple(sorted({each.name[start:].partition(".")[0] for each in self.below(namespace)}))


ACCESS_POLICY: Final = Vocabulary(
    variables=(
        Variable(
            name="request.method", kind=Kind.STRING, about="The HTTP method as the client sent it, such as `POST`."
        ),
        Variable(name="request.path", kind=Kind.STRING, about="The path without the query, such as `/mcp`."),
        Variable(name="request.url_path", kind=Kind.STRING, about="The same as `request.path`."),
        Variable(
            name="request.query",
            kind=Kind.STRING,
            about="The query without the question mark; empty if the request has no query.",
        ),
        Variable(name="request.host", kind=Kind.STRING, about="The host that the client requested."),
        Variable(
            name="request.headers",
            kind=Kind.TEXTS,
            about="Headers by lower-case name. If a header has several values, authplane joins them with a comma.",
        ),
        Variable(
            name="request.time",
            kind=Kind.TIMESTAMP,
            about="The time at which the proxy received the request; absent if unknown.",
        ),
        Variable(
            name="request.mcp.method",
            kind=Kind.STRING,
            about="The JSON-RPC method, such as `tools/call`; only for MCP backends.",
        ),
        Variable(
            name="request.mcp.tool_name",
            kind=Kind.STRING,
            about="The tool of a `tools/call`; absent for other methods.",
        ),
        Variable(
            name="request.mcp.params",
            kind=Kind.MEMBERS,
            about="The arguments of a `tools/call`; for other methods, their parameters.",
        ),
        Variable(
            name="identity",
            kind=Kind.MEMBERS,
            about="The identity of the client. OIDC: all claims of the token. SPIFFE: `spiffe_id`. "
            "ServiceAccount: `service_account` and `namespace`. Empty in a rule without `source`.",
        ),
    ),
    hints=(
        (
            "request.body",
            "The body of an MCP request is already parsed. Use request.mcp.tool_name or request.mcp.params.",
        ),
        ("request.mcp.name", "Use request.mcp.tool_name."),
        ("request.mcp.arguments", "Use request.mcp.params, which contains the arguments of a tools/call."),
    ),
)
"""The context of the CEL rules of an AccessPolicy whose targets are MCP backends."""
