"""``Router`` to our value; its fields are ignored."""

from typing import Final

from envoy.extensions.filters.http.router.v3 import router_pb2 as pb
from google.protobuf.message import DecodeError

from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Flow, Proceed, Running, Side
from authplane.dataplane.filters.registry import FilterType, Packed, Scope, State

TYPE_NAME: Final = "envoy.extensions.filters.http.router.v3.Router"


@dataclass(frozen=True, slots=True)
class Router:
    """The end of a chain; it makes no decision."""

    def build(self, state: State, override: object | None) -> Running:
        """Return itself: there is nothing to keep."""
        del state, override
        return self

    def run(self, call: Call) -> Flow:
        """Let the call go on."""
        yield from ()
        return Proceed(metadata=call.metadata)


def parse_router(packed: Packed, scope: Scope) -> Router | tuple[Problem, ...]:
    """Read the configuration, to see that it is one."""
    del scope
    try:
        pb.Router.FromString(packed.value)
    except DecodeError:
        return (Problem((), "Unreadable", f"Cannot decode the bytes. Expected {TYPE_NAME}."),)
    return Router()


ROUTER: Final = FilterType(type_urls=(TYPE_NAME,), sides=frozenset(Side), terminal=True, parse=parse_router)
