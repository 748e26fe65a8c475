"""The interface of backends, which decide requests."""

from collections.abc import Generator
from datetime import datetime
from typing import Protocol, TypeAlias

from authplane.policy.check.decision import Decision
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Effect, Outcome
from authplane.policy.verdicts.verdict import Verdict

Judgement: TypeAlias = Decision | Verdict
"""A decision, or a decision with its grounds, from a backend that reports them."""
JudgementFlow: TypeAlias = Generator[Effect, Outcome, Judgement]


class Backend(Protocol):
    """Decides about requests. An exception means that there is no decision: it never allows."""

    @property
    def name(self) -> str:
        """The name in logs."""

    def decide(self, request: Request, now: datetime) -> Judgement | JudgementFlow:
        """Decide one request: at once, or in a flow that requires an effect first."""
