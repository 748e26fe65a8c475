"""A custom filter, for code and for xDS."""

import json
from dataclasses import dataclass
from typing import Final

from authplane.grpc import (
    Call,
    Code,
    FilterConfig,
    FilterType,
    Flow,
    Packed,
    Problem,
    Proceed,
    Scope,
    Side,
    State,
    Stop,
    Structured,
)


@dataclass(frozen=True)
class RequireHeader:
    """Rejects calls without a header."""

    name: str

    def build(self, state: State, override: object | None) -> "RequireHeader":
        """Return the object that decides calls."""
        return self

    def run(self, call: Call) -> Flow:
        """Decide one call."""
        yield from ()
        if any(name == self.name for name, _ in call.metadata):
            return Proceed(metadata=call.metadata)
        return Stop(code=Code.INVALID_ARGUMENT, message=f"{self.name} is missing")


def parse(config: Structured, _: Scope) -> FilterConfig | tuple[Problem, ...]:
    """Read ``{"name": "x-team"}``."""
    name = json.loads(config.json).get("name")
    if isinstance(name, str) and name:
        return RequireHeader(name)
    return (Problem(("name",), "Missing", "must name a header"),)


def refuse(config: Packed, _: Scope) -> tuple[Problem, ...]:
    """Reject other messages than a TypedStruct."""
    return (Problem((), "FormUnsupported", f"{config.type_name} is a TypedStruct"),)


REQUIRE_HEADER: Final = FilterType(
    type_urls=("example.RequireHeader",),
    sides=frozenset(Side),
    parse=refuse,
    parse_structured=parse,
)
