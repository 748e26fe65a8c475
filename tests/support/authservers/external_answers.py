"""The external service that policies ask: the same word over gRPC and in this process."""

from datetime import datetime
from typing import ClassVar, Final

from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Ask, Declined, Granted, Outcome

SERVICE: Final = "authz"
PORT: Final = 9000


class RedTeam:
    """Lets those through who say that they are of the red team."""

    name: ClassVar = "red-team"

    def decide(self, request: Request, _now: datetime) -> Decision:
        return Allow() if _red(request) else Deny(http_status=403, rule="not red")


def answer(ask: Ask) -> Outcome:
    """Say the same to whoever asks in this process."""
    return Granted() if _red(ask.request) else Declined()


def _red(request: Request) -> bool:
    return request.values("x-team") == ("red",)
