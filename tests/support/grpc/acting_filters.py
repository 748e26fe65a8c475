"""Filters of the tests' own."""

from dataclasses import dataclass
from typing import Any

from authplane.grpc import Call, Flow, Proceed, State, Stop, Wait


@dataclass(frozen=True)
class Doing:
    """A filter that does what a test says."""

    verdict: Any = None

    def build(self, state: State, override: object | None) -> "Doing":
        return self

    def run(self, call: Call) -> Flow:
        yield from ()
        made: Proceed | Stop = self.verdict(call) if callable(self.verdict) else self.verdict
        return made


@dataclass(frozen=True)
class Sleeping:
    """A filter that waits."""

    seconds: float

    def build(self, state: State, override: object | None) -> "Sleeping":
        return self

    def run(self, call: Call) -> Flow:
        yield Wait(self.seconds)
        return Proceed(metadata=call.metadata)
