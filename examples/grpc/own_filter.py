"""A filter of one's own, for code and for xDS."""

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
    """Lets only calls pass that have a header."""

    name: str

    def build(self, state: State, override: object | None) -> "RequireHeader":
        """Return what judges calls."""
        return self

    def run(self, call: Call) -> Flow:
        """Judge one call."""
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
    """Say how the filter is configured."""
    return (Problem((), "FormUnsupported", f"{config.type_name} is a TypedStruct"),)


REQUIRE_HEADER: Final = FilterType(
    type_urls=("example.RequireHeader",),
    sides=frozenset(Side),
    parse=refuse,
    parse_structured=parse,
)
