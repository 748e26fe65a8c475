"""One check: bytes in, bytes and the decision out."""

from collections.abc import Generator
from datetime import datetime
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

from authplane.authserver.engine.wire import parse_check, render_decision, render_failure
from authplane.policy.check.answer_headers import excess_in, fault_in, may_send
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.effects import Effect, Flow, Outcome


class Backend(Protocol):
    """Decides about requests. An exception means that there is no decision: it never allows."""

    @property
    def name(self) -> str:
        """What logs call it."""

    def decide(self, request: Request, now: datetime) -> Decision | Flow:
        """Judge one request: at once, or in a flow that asks for something first."""


class Answer(NamedTuple):
    """The reply to a check, with what led to it, so that a front can log every decision.

    A tuple and no dataclass: every check makes one, and this is made faster.
    """

    reply: bytes
    """A serialized CheckResponse."""
    request: Request | Malformed
    decision: Decision


AnswerFlow: TypeAlias = Generator[Effect, Outcome, Answer]

FAILED: Final = render_failure()
"""The reply of a front whose backend raised: a denial, made beforehand, so that nothing can fail in giving it."""


def check(backend: Backend, body: bytes, now: datetime) -> Answer | AnswerFlow:
    """Judge a serialized CheckRequest: at once, or in a flow if the backend asks for something first.

    Raises only what the backend raises, and a front then says `FAILED`.
    """
    request = parse_check(body)
    match request:
        case Request():
            judged = backend.decide(request, now)
            if not isinstance(judged, (Allow, Deny, Unavailable)):
                return _await(request, judged)
            return _answer(request, judged)
        case Malformed(reason=reason):
            return _answer(request, Deny(http_status=400, body=f"{reason}\n", rule="malformed"))
        case _:
            assert_never(request)


def answer(backend: Backend, body: bytes, now: datetime) -> Answer:
    """Judge a serialized CheckRequest with a backend that asks for nothing on the way."""
    made = check(backend, body, now)
    if isinstance(made, Answer):
        return made
    try:
        effect = next(made)
    except StopIteration as finished:
        late: Answer = finished.value
        return late
    made.close()
    raise TypeError(f"{backend.name} asked for {effect} where nobody can give it")


def _await(request: Request, flow: Flow) -> AnswerFlow:
    return _answer(request, (yield from flow))


def _answer(request: Request | Malformed, decision: Decision) -> Answer:
    kept = _SAME.get(id(decision)) or _EQUAL.get(decision) or _keep(decision)
    # What `Answer(...)` does, in half the time.
    return _new_tuple(Answer, (kept.reply, request, kept.sendable))


_new_tuple: Final = tuple.__new__


class _Kept(NamedTuple):
    """A decision with what is sent for it."""

    decision: Decision
    sendable: Decision
    reply: bytes


_MOST_KEPT: Final = 4096
_MOST_TEXT: Final = 4096
"""Characters that a decision may have and still be kept: clients and external services may cause longer ones, and ever
others."""
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_EQUAL: Final[dict[Decision, _Kept]] = {}
"""The same few decisions are made again and again; checking and writing them costs more than all the rest."""
_SAME: Final[dict[int, _Kept]] = {}
"""The same by their identity, which is found faster; nothing else can have it, since they stay alive in here."""


def _keep(decision: Decision) -> _Kept:
    """Return what is sent for a decision, and remember it if that may be."""
    sendable = sendable_form(decision)
    kept = _Kept(decision, sendable, render_decision(sendable))
    if _repeats(decision):
        if len(_EQUAL) >= _MOST_KEPT:
            _EQUAL.clear()
            _SAME.clear()
        _EQUAL[decision] = _SAME[id(decision)] = kept
    return kept


def _repeats(decision: Decision) -> bool:
    """Tell whether a decision may be kept: neither sessions of the client nor credentials for the origin may."""
    match decision:
        case Allow(edits=edits, response_headers=headers, identity=identity):
            size = _size(edits.set) + sum(map(len, edits.remove)) + len(identity)
            return not headers and size <= _MOST_TEXT and all(name.lower() not in _SECRET for name, _ in edits.set)
        case Deny(headers=headers, body=body, rule=rule, identity=identity):
            size = _size(headers) + len(body) + len(rule) + len(identity)
            return size <= _MOST_TEXT and all(name.lower() != "set-cookie" for name, _ in headers)
        case Unavailable():
            return True
        case _:
            assert_never(decision)


def _size(headers: tuple[tuple[str, str], ...]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def sendable_form(decision: Decision) -> Decision:
    """Deny instead of what a proxy could not obey: edits that it must not make, a denial that it could not send."""
    match decision:
        case Allow(edits=edits, response_headers=headers):
            fault = fault_in(edits) or _fault(headers, "")
        case Deny(headers=headers, body=body):
            fault = _fault(headers, body)
        case Unavailable():
            fault = None
        case _:
            assert_never(decision)
    return Deny(http_status=403, rule=f"unsendable: {fault}") if fault else decision


def _fault(headers: tuple[tuple[str, str], ...], body: str) -> str | None:
    unfit = [name for name, value in headers if not may_send(name, value)]
    if unfit:
        return f"the header {unfit[0]!r} of the response"
    excess = excess_in(headers)
    if excess:
        return f"{excess} in the response"
    return None if body.encode(errors="replace").decode() == body else "the body of the response is not text"
