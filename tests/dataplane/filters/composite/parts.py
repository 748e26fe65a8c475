"""Filters that leave a mark, to be chosen, and a registry with them."""

from dataclasses import dataclass, replace
from typing import Final

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from tests.support.dataplane.driven_calls import Watched, packed

from authplane.core.problems import Problem
from authplane.dataplane.filters.calls import Call, Change, Code, Flow, Mutation, Proceed, Running, Side, Stop
from authplane.dataplane.filters.composite.filter import Choice, Composite
from authplane.dataplane.filters.composite.wire import parse_choice, parse_composite
from authplane.dataplane.filters.registry import FilterType, Packed, Scope, State, Structured, Trust
from authplane.dataplane.filters.standard_filters import standard_registry


class Times:
    """How often a filter has run."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True)
class Mark:
    """Adds its name to the headers of calls and of responses; ``stop`` as a name stops the call."""

    name: str

    def build(self, state: State, override: object | None) -> Running:
        assert override is None
        return _Marking(self.name, state.kept.of(Times, Times))


@dataclass(frozen=True)
class _Marking:
    name: str
    times: Times

    def run(self, call: Call) -> Flow:
        yield from ()
        self.times.count += 1
        if self.name == "stop":
            return Stop(code=Code.ABORTED, message="stopped")
        return Proceed(
            metadata=(*call.metadata, ("mark", f"{self.name}{self.times.count}")),
            response_metadata=(("mark", self.name),),
            response_mutations=(Mutation("last", self.name, Change.OVERWRITE_OR_ADD),),
        )


def parse_mark(raw: Packed, scope: Scope) -> Mark | tuple[Problem, ...]:
    name = wrappers_pb2.StringValue.FromString(raw.value).value
    return Mark(name) if name else (Problem(("value",), "Empty", "is empty"),)


def parse_structured_mark(raw: Structured, scope: Scope) -> Mark:
    return Mark(raw.json)


MARK: Final = FilterType(
    type_urls=("google.protobuf.StringValue",),
    sides=frozenset(Side),
    parse=parse_mark,
    parse_structured=parse_structured_mark,
)
SERVERS_ONLY: Final = FilterType(
    type_urls=("google.protobuf.BytesValue",), sides=frozenset({Side.SERVER}), parse=parse_mark
)
REGISTRY: Final = standard_registry().adding(MARK, SERVERS_ONLY)
SERVER: Final = Scope(side=Side.SERVER, trust=Trust(trusted=True), registry=REGISTRY)
CLIENT: Final = replace(SERVER, side=Side.CLIENT)


def mark(name: str) -> wrappers_pb2.StringValue:
    return wrappers_pb2.StringValue(value=name)


def read(message: Message, scope: Scope = SERVER) -> Composite | list[str]:
    found = parse_composite(packed(message), scope)
    return [str(each) for each in found] if isinstance(found, tuple) else found


def read_override(message: Message, scope: Scope = SERVER) -> Choice | list[str]:
    found = parse_choice(packed(message), scope)
    return [str(each) for each in found] if isinstance(found, tuple) else found


def build(message: Message, scope: Scope = SERVER, watched: Watched | None = None) -> Running:
    found = read(message, scope)
    assert isinstance(found, Composite), found
    return found.build((watched or Watched()).state, None)
