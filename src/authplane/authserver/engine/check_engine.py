"""One check: bytes in, bytes and the decision out."""

from collections.abc import Generator
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from authplane.authserver.engine.backend import Backend, Judgement, JudgementFlow
from authplane.authserver.engine.backend_choice import Choice, choice_of
from authplane.authserver.engine.replies import Replies
from authplane.authserver.engine.wire import CheckParser, render_failure
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.effects import Effect, Outcome
from authplane.policy.verdicts.verdict import Verdict

T = TypeVar("T")


class Answer(NamedTuple):
    """The reply to a check, with all that the decision log needs.

    A tuple and no dataclass: every check makes one, and this is made faster.
    """

    reply: bytes
    """A serialized CheckResponse."""
    request: Request | Malformed
    decision: Decision
    """The decision in the reply."""
    backend: str = ""
    """The name of the backend that decided; `NOBODY` if a choice picked none."""
    verdict: Verdict | None = None
    """The grounds of the decision, if the backend reports them.

    Its own decision differs if a proxy could not have applied it.
    """


AnswerFlow: TypeAlias = Generator[Effect, Outcome, Answer]


class Pending(NamedTuple, Generic[T]):
    """A check whose backend requires an effect first."""

    backend: str
    flow: Generator[Effect, Outcome, T]
    """Raises only what the backend raises."""
    request: Request | Malformed | None = None
    """What the log shows, even if there is no decision in the end."""


class Failed(NamedTuple):
    """A check whose backend raised."""

    backend: str
    error: Exception
    request: Request | Malformed | None = None
    """None if the check could not be read."""


FAILED: Final = render_failure()
"""The reply to a check that failed: a denial, made beforehand, so that nothing can fail in giving it."""


class CheckEngine:
    """Judges serialized CheckRequests, with one backend or with the one that a choice picks."""

    def __init__(self, backends: Backend | Choice) -> None:
        self._choice = choice_of(backends)
        self._only = None if self._choice.only is None else self._choice.only.backend
        self._nobody = self._choice.nobody
        self._parse = CheckParser().parse
        self.replies = Replies()
        self._same = self.replies.same

    def check(self, body: bytes, now: datetime) -> Answer | Pending[Answer] | Failed:
        """Decide a check: at once, or in a flow if the backend requires an effect first. It does not raise."""
        name = self._nobody
        request: Request | Malformed | None = None
        try:
            request = self._parse(body)
            if isinstance(request, Malformed):
                judged: Judgement | JudgementFlow = _malformed(request)
            elif self._only is not None:
                judged = self._only.decide(request, now)
            else:
                picked = self._choice.pick(request)
                if isinstance(picked, Deny):
                    judged = picked
                else:
                    name = picked.name
                    judged = picked.backend.decide(request, now)
            # First, since it is the fastest test for a decision, as opposed to a verdict or a flow.
            reply = self._same.get(id(judged))
            if reply is not None:
                return _new_tuple(Answer, (reply.body, request, reply.sendable, name, None))
            if isinstance(judged, Verdict):
                return self._answer(request, judged.decision, name, judged)
            if isinstance(judged, (Allow, Deny, Unavailable)):
                return self._answer(request, judged, name, None)
            return Pending(name, self._await(request, judged, name), request)
        except Exception as error:  # noqa: BLE001 (a fault of a backend must become an answer that does not allow)
            return Failed(name, error, request)

    def _await(self, request: Request | Malformed, flow: JudgementFlow, name: str) -> AnswerFlow:
        judged = yield from flow
        if isinstance(judged, Verdict):
            return self._answer(request, judged.decision, name, judged)
        return self._answer(request, judged, name, None)

    def _answer(self, request: Request | Malformed, decision: Decision, name: str, verdict: Verdict | None) -> Answer:
        reply = self._same.get(id(decision)) or self.replies.find(decision)
        # What `Answer(...)` does, in half the time.
        return _new_tuple(Answer, (reply.body, request, reply.sendable, name, verdict))


def _malformed(request: Malformed) -> Deny:
    return Deny(http_status=400, body=f"{request.reason}\n", rule="malformed")


_new_tuple: Final = tuple.__new__
