"""Decides at once, with external services that answer as they were told."""

from datetime import UTC, datetime

from tests.support.policies.callers import Proof
from tests.support.policies.mcp_requests import ADD_CALL
from tests.support.policies.names import TO_SHOP

from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.decide.decide import MEANS, decide
from authplane.policy.decide.request_case import Means
from authplane.policy.verdicts.effects import Ask, NoAnswer, Outcome
from authplane.policy.verdicts.verdict import Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Services:
    """External services that answer as they were told; notes who was asked."""

    def __init__(self, **answers: Outcome) -> None:
        self._answers = answers
        self.asked: list[Ask] = []

    def answer(self, effect: object) -> Outcome:
        assert isinstance(effect, Ask)
        self.asked.append(effect)
        return self._answers.get(effect.service.service.name, NoAnswer("nobody"))

    @property
    def names(self) -> list[str]:
        return [each.service.service.name for each in self.asked]


def judge(  # noqa: PLR0913 (as above)
    made: Policies,
    asked: Request = ADD_CALL,
    proof: Proof | None = None,
    services: Services | None = None,
    *,
    target: RequestTarget = TO_SHOP,
    means: Means = MEANS,
) -> Verdict:
    """Decide, with external services that answer at once."""
    flow = decide(made, target, asked, proof or Proof(), NOW, means=means)
    if isinstance(flow, Verdict):
        return flow
    replies = services or Services()
    try:
        effect = next(flow)
        while True:
            effect = flow.send(replies.answer(effect))
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict


def word(verdict: Verdict) -> str:
    """Say in a word how it ended: ``allow``, the status of a denial, or ``unavailable``."""
    match verdict.decision:
        case Allow():
            return "allow"
        case Deny(http_status=status):
            return str(status)
        case Unavailable():
            return "unavailable"
