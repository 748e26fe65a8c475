"""Replies to checks as bytes, made once for decisions that recur."""

from typing import Final, NamedTuple, assert_never

from authplane.authserver.engine.wire import render_decision
from authplane.policy.check.answer_headers import excess_in, fault_in, may_send
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable

MOST_KEPT: Final = 4096
"""How many replies an engine keeps."""
_MOST_TEXT: Final = 4096
"""Characters that a decision may have and still be kept: clients and external services may cause longer ones, and ever
others."""
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class Reply(NamedTuple):
    """A decision with what is sent for it."""

    decision: Decision
    sendable: Decision
    """The decision, or the denial that is sent in its place since no proxy could obey it."""
    body: bytes
    """A serialized CheckResponse."""


class Replies:
    """The replies of one engine: the same few decisions are made again and again.

    To keep them takes a check from 24 to 6 µs.
    """

    def __init__(self) -> None:
        self._equal: dict[Decision, Reply] = {}
        self.same: dict[int, Reply] = {}
        """The same by the identity of the decision, which saves another 0.3 µs: backends return the same objects again.

        No other object can have the identity of one of them: they stay alive in here.
        """

    def __len__(self) -> int:
        return len(self._equal)

    def find(self, decision: Decision) -> Reply:
        """Return the reply for a decision, and cache it if possible."""
        known = self._equal.get(decision)
        if known is not None:
            return known
        sendable = sendable_form(decision)
        reply = Reply(decision, sendable, render_decision(sendable))
        if _repeats(decision):
            if len(self._equal) >= MOST_KEPT:
                self._equal.clear()
                self.same.clear()
            self._equal[decision] = self.same[id(decision)] = reply
        return reply


def _repeats(decision: Decision) -> bool:
    """Tell whether a decision may be kept: neither sessions of the client nor credentials for the origin may."""
    match decision:
        case Allow(edits=edits, response_headers=headers, identity=identity):
            size = _size(edits.set) + sum(map(len, edits.remove)) + len(identity)
            return not headers and size <= _MOST_TEXT and all(name.lower() not in _SECRET for name, _ in edits.set)
        case Deny(headers=headers, body=body, message=message, rule=rule, identity=identity, decision_id=id_):
            size = _size(headers) + len(body) + len(message) + len(rule) + len(identity)
            return not id_ and size <= _MOST_TEXT and all(name.lower() != "set-cookie" for name, _ in headers)
        case Unavailable(body=body):
            return not body
        case _:
            assert_never(decision)


def _size(headers: tuple[tuple[str, str], ...]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def sendable_form(decision: Decision) -> Decision:
    """Deny instead of what a proxy could not obey: edits that it must not make, a denial that it could not send."""
    match decision:
        case Allow(edits=edits, response_headers=headers):
            fault = fault_in(edits) or _fault(headers, "")
        case Deny(headers=headers, body=body, message=message):
            fault = _fault(headers, f"{body}{message}")
        case Unavailable(headers=headers, body=body):
            fault = _fault(headers, body)
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
