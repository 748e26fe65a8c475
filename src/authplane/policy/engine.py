"""One check: bytes in, bytes and the decision out."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, assert_never

from authplane.policy.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.headers import fault_in, may_send
from authplane.policy.request import Malformed, Request
from authplane.policy.wire import parse_check, render_decision


class Backend(Protocol):
    """Decides about requests. An exception means that there is no decision: it never allows."""

    @property
    def name(self) -> str:
        """What logs call it."""

    def decide(self, request: Request, now: datetime) -> Decision:
        """Judge one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reply to a check, with what led to it, so that a front can log every decision."""

    reply: bytes
    """A serialized CheckResponse."""
    request: Request | Malformed
    decision: Decision


UNDECIDED: Final = render_decision(Unavailable(cause="the check failed"))
"""The reply of a front whose backend raised: made beforehand, so that nothing can fail in giving it."""


def answer(backend: Backend, body: bytes, now: datetime) -> Answer:
    """Judge a serialized CheckRequest; raises only what the backend raises, and a front then says `UNDECIDED`."""
    request = parse_check(body)
    match request:
        case Request():
            decision = _sendable(backend.decide(request, now))
        case Malformed(reason=reason):
            decision = Deny(http_status=400, body=f"{reason}\n", rule="malformed")
        case _:
            assert_never(request)
    return Answer(reply=render_decision(decision), request=request, decision=decision)


def _sendable(decision: Decision) -> Decision:
    """Withdraw what a proxy could not obey: an Allow that edits it must not, a Deny with an unfit header or body."""
    match decision:
        case Allow(edits=edits):
            fault = fault_in(edits)
            return Unavailable(cause=fault) if fault else decision
        case Deny(headers=headers, body=body):
            unfit = [name for name, value in headers if not may_send(name, value)]
            if unfit:
                return Unavailable(cause=f"the denial's header {unfit[0]!r} cannot be sent")
            encodable = body.encode(errors="replace").decode()
            return decision if encodable == body else Unavailable(cause="the denial's body is not text")
        case Unavailable():
            return decision
        case _:
            assert_never(decision)
