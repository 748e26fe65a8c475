"""Calls, connections and a driver for tests of filters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import Message

from authplane.dataplane.filters.calls import Call, Effect, Endpoint, Flow, Outcome, PeerCertificate, Side, Verdict
from authplane.dataplane.filters.registry import Kept, Packed, State
from authplane.matching.string_matchers import NoRegex, Regex, compile_regex

STARTED: Final = datetime(2026, 8, 1, 12, 30, 15, 250_000, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A connection, all of it known."""

    remote: Endpoint = field(default_factory=lambda: Endpoint(address="10.1.2.3", port=4711))
    local: Endpoint = field(default_factory=lambda: Endpoint(address="10.9.9.9", port=50051))
    certificate: PeerCertificate | None = None
    own_principal: str = ""
    tls_version: str = ""
    requested_server_name: str = ""


CALL: Final = Call(
    side=Side.SERVER,
    path="/shop.Cart/Add",
    authority="shop.example:443",
    metadata=(("user-agent", "test"),),
    started=STARTED,
    remaining=None,
    connection=Wire(),
)
CLIENT_CALL: Final = replace(CALL, side=Side.CLIENT, connection=None, target="xds:///shop")


def call(*metadata: tuple[str, str | bytes], **changes: Any) -> Call:
    return replace(CALL, metadata=metadata, **changes)


class Ticks:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Watched:
    """A state whose counters and sentences tests read."""

    clock: Ticks = field(default_factory=Ticks)
    counted: list[tuple[str, str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    draws: Iterator[float] = field(default_factory=lambda: iter(()))
    kept: Kept = field(default_factory=Kept)

    @property
    def state(self) -> State:
        return State(
            random=lambda: next(self.draws),
            monotonic=self.clock,
            count=lambda metric, target: self.counted.append((metric, target)),
            tell=self.told.append,
            kept=self.kept,
        )


def drive(flow: Flow, answer: Callable[[Effect], Outcome]) -> tuple[Verdict, list[Effect]]:
    """Run a flow to its end; return its verdict and what it asked for."""
    effects: list[Effect] = []
    try:
        effect = next(flow)
        while True:
            effects.append(effect)
            effect = flow.send(answer(effect))
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict, effects


def no_effects(flow: Flow) -> Verdict:
    def refuse(effect: Effect) -> Outcome:
        raise AssertionError(f"unexpected {effect}")

    return drive(flow, refuse)[0]


def packed(message: Message) -> Packed:
    return Packed(message.DESCRIPTOR.full_name, message.SerializeToString())


def regex(pattern: str) -> Regex:
    made = compile_regex(pattern)
    assert not isinstance(made, NoRegex)
    return made
