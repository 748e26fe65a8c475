"""Who is told of checks in tests."""

from dataclasses import dataclass, field
from typing import Self

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.fronts.runtime.answer_checks import Described
from authplane.authserver.records.runtime.traces import CallerTrace
from authplane.policy.check.decision import Decision


@dataclass(slots=True)
class Told:
    """Remembers what it is told."""

    traces: bool = False
    decisions: list[Decision] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    undecided: list[Described] = field(default_factory=list)
    """The requests without a decision."""

    def of(self, backend: str) -> Self:
        return self

    def began(self) -> None:
        self.events.append("began")

    def decided(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        self.events.append("decided")
        self.decisions.append(made.decision)

    def passed(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        self.began()
        self.decided(made, seconds, caller)

    def failed(self, error: Exception, seconds: float, caller: CallerTrace, request: Described) -> None:
        self.events.append("failed")
        self.undecided.append(request)

    def late(self, seconds: float, caller: CallerTrace, request: Described) -> None:
        self.events.append("late")
        self.undecided.append(request)

    def shed(self) -> None:
        self.events.append("shed")
