"""The engine never allows by accident."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.authservers.answers import answer, parse_check
from tests.support.authservers.check_requests import check

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.check_engine import FAILED, Answer, CheckEngine, Failed, Pending
from authplane.authserver.engine.replies import MOST_KEPT
from authplane.authserver.engine.wire import render_decision
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.effects import Busy, Flow, Outcome, Work

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Constant:
    """Always says the same."""

    name: ClassVar = "constant"
    decision: Decision

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return self.decision


class Broken:
    """Fails like a backend with a bug."""

    name: ClassVar = "broken"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        raise KeyError("group")


def _code(reply: bytes) -> int:
    return pb.CheckResponse.FromString(reply).status.code


def test_an_answer_carries_the_reply_the_request_and_the_decision() -> None:
    body = check("/a").SerializeToString()
    deny = Deny(http_status=403, rule="no")
    want = Answer(reply=render_decision(deny), request=parse_check(body), decision=deny, backend="constant")
    assert answer(Constant(deny), body, NOW) == want


def test_a_malformed_check_is_denied_whatever_the_backend_says() -> None:
    made = answer(Constant(Allow()), b"", NOW)
    deny = Deny(http_status=400, body="the request has no method\n", rule="malformed")
    want = Answer(
        reply=render_decision(deny),
        request=Malformed(reason="the request has no method"),
        decision=deny,
        backend="constant",
    )
    assert made == want


def test_a_backend_that_raises_gives_no_answer_and_the_prepared_one_does_not_allow() -> None:
    failed = CheckEngine(Broken()).check(check().SerializeToString(), NOW)
    assert isinstance(failed, Failed)
    assert (failed.backend, repr(failed.error)) == ("broken", "KeyError('group')")
    response = pb.CheckResponse.FromString(FAILED)
    assert (response.status.code, response.WhichOneof("http_response")) == (14, "denied_response")
    assert response.denied_response.status.code == 503


UNSENDABLE: Final[dict[str, tuple[Decision, str]]] = {
    "a line break in a value": (
        Allow(edits=HeaderEdits(set=(("x-user", "a\r\nx-admin: 1"),))),
        "the value for the header 'x-user' cannot be sent",
    ),
    "a pseudo header": (Allow(edits=HeaderEdits(set=((":path", "/"),))), "the header ':path' cannot be edited"),
    "a framing header": (
        Allow(edits=HeaderEdits(set=(("Transfer-Encoding", "chunked"),))),
        "the header 'Transfer-Encoding' cannot be edited",
    ),
    "removing the host": (Allow(edits=HeaderEdits(remove=("host",))), "the header 'host' cannot be edited"),
    "a value of more than 4 KiB": (
        Allow(edits=HeaderEdits(set=(("x-user", "a" * 4097),))),
        "the value for the header 'x-user' cannot be sent",
    ),
    "too many headers": (
        Allow(edits=HeaderEdits(set=tuple((f"x-{index}", "") for index in range(101)))),
        "101 headers exceed the maximum of 100",
    ),
    "too many bytes": (
        Allow(edits=HeaderEdits(set=tuple((f"x-{index:02}", "a" * 4092) for index in range(16)))),
        "65536 bytes of headers exceed the maximum of 61440",
    ),
    "an allowance with too many headers for the client": (
        Allow(response_headers=tuple((f"x-{index}", "") for index in range(101))),
        "101 headers exceed the maximum of 100 in the response",
    ),
    "a denial with too many bytes in its headers": (
        Deny(http_status=403, headers=tuple((f"x-{index:02}", "a" * 4092) for index in range(16)), rule="r"),
        "65536 bytes of headers exceed the maximum of 61440 in the response",
    ),
    "a denial with a line break in a header": (
        Deny(http_status=403, headers=(("x-why", "a\nb"),), rule="r"),
        "the header 'x-why' of the response",
    ),
    "a denial whose body is not text": (
        Deny(http_status=403, body="\ud800", rule="r"),
        "the body of the response is not text",
    ),
}


@pytest.mark.requirement("E04")
@pytest.mark.requirement("E05")
@pytest.mark.parametrize(("decision", "fault"), UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_what_a_proxy_could_not_obey_is_denied(decision: Decision, fault: str) -> None:
    made = answer(Constant(decision), check().SerializeToString(), NOW)
    assert (made.decision, _code(made.reply)) == (Deny(http_status=403, rule=f"unsendable: {fault}"), 7)


@dataclass(frozen=True, slots=True)
class Asking:
    """Has something computed first."""

    name: ClassVar = "asking"

    def decide(self, _request: Request, _now: datetime) -> Flow:
        outcome = yield Work(lambda: True)
        return Allow(identity="ann") if outcome is True else Unavailable(cause="busy")


@pytest.mark.parametrize(("outcome", "want"), [(True, Allow(identity="ann")), (Busy(), Unavailable(cause="busy"))])
def test_a_backend_may_ask_for_work_on_the_way(outcome: Outcome, want: Decision) -> None:
    pending = CheckEngine(Asking()).check(check().SerializeToString(), NOW)
    assert isinstance(pending, Pending)
    backend, flow, request = pending
    assert isinstance(request, Request)
    assert (backend, request.id) == ("asking", "7")
    asked = next(flow)
    assert isinstance(asked, Work)
    assert asked.run()
    with pytest.raises(StopIteration) as finished:
        flow.send(outcome)
    assert finished.value.value.decision == want


def test_headers_for_the_client_are_added_each_of_them() -> None:
    cookies = (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    reply = answer(Constant(Allow(response_headers=cookies)), check().SerializeToString(), NOW).reply
    added = pb.CheckResponse.FromString(reply).ok_response.response_headers_to_add
    assert [(option.header.key, option.header.value, option.append_action) for option in added] == [
        ("Set-Cookie", "a=1", 0),
        ("Set-Cookie", "b=2", 0),
    ]


def test_no_decision_stays_no_decision() -> None:
    made = answer(Constant(Unavailable(cause="down")), check().SerializeToString(), NOW)
    assert (made.decision, _code(made.reply)) == (Unavailable(cause="down"), 14)


TEXT: Final = st.text(max_size=20)
HEADER: Final = st.builds(base_pb2.HeaderValue, key=TEXT, value=TEXT) | st.builds(
    base_pb2.HeaderValue, key=TEXT, raw_value=st.binary(max_size=20)
)
OURS: Final = st.sampled_from(["auth-handler", "Auth_Username", "auth-context-a", "auth_context_b", "x"])
HTTP: Final = st.builds(
    attribute_context_pb2.AttributeContext.HttpRequest,
    method=st.sampled_from(["", "GET"]) | TEXT,
    path=st.sampled_from(["/", "/allow", "/x?allow"]) | TEXT,
    host=TEXT,
    headers=st.dictionaries(TEXT | OURS, TEXT, max_size=5),
    header_map=st.none() | st.builds(base_pb2.HeaderMap, headers=st.lists(HEADER, max_size=5)),
)
CHECKS: Final = st.builds(
    pb.CheckRequest,
    attributes=st.builds(
        attribute_context_pb2.AttributeContext,
        request=st.builds(attribute_context_pb2.AttributeContext.Request, http=HTTP),
        context_extensions=st.dictionaries(TEXT | st.sampled_from(["a", "A", "b"]), TEXT, max_size=5),
    ),
)
MODES: Final = st.sampled_from(Mode)


@settings(deadline=None)
@given(body=st.binary(max_size=200), mode=MODES)
def test_random_bytes_are_answered_and_allowed_only_by_the_backend(body: bytes, mode: Mode) -> None:
    made = answer(TestServer(mode=mode), body, NOW)
    assert (_code(made.reply) == 0) == isinstance(made.decision, Allow)


@pytest.mark.slow
@settings(deadline=None)
@given(message=CHECKS, mode=MODES)
def test_random_checks_are_answered_and_allowed_only_by_the_backend(message: pb.CheckRequest, mode: Mode) -> None:
    made = answer(TestServer(mode=mode), message.SerializeToString(), NOW)
    response = pb.CheckResponse.FromString(made.reply)
    assert (response.status.code == 0) == isinstance(made.decision, Allow)
    assert response.status.code == 0 or response.WhichOneof("http_response") != "ok_response"
    if mode is Mode.PATH and response.status.code == 0:
        assert "allow" in message.attributes.request.http.path.partition("?")[0]
    added = {option.header.key.lower() for option in response.ok_response.headers}
    assert added.isdisjoint(name.lower() for name in response.ok_response.headers_to_remove)


@pytest.mark.slow
@settings(deadline=None)
@given(message=CHECKS)
def test_a_random_check_is_never_allowed_by_a_backend_that_denies(message: pb.CheckRequest) -> None:
    made = answer(Constant(Deny(http_status=403, rule="no")), message.SerializeToString(), NOW)
    assert _code(made.reply) == 7


KEPT: Final = {
    "an allowance": (Allow(), 1),
    "an allowance with a short header": (Allow(edits=HeaderEdits(set=(("auth-username", "ann"),))), 1),
    "an allowance with credentials": (Allow(edits=HeaderEdits(set=(("Authorization", "Bearer x"),))), 0),
    "an allowance with a cookie for the origin": (Allow(edits=HeaderEdits(set=(("cookie", "a=b"),))), 0),
    "an allowance with a cookie for the client": (Allow(response_headers=(("set-cookie", "a=b"),)), 0),
    "an allowance with much to say": (
        Allow(edits=HeaderEdits(set=tuple((f"x-{index}", "x" * 1000) for index in range(5)))), 0
    ),
    "an allowance with much to remove": (
        Allow(edits=HeaderEdits(remove=tuple(f"auth-context-{index}-{'x' * 200}" for index in range(25)))), 0
    ),
    "an allowance with long names": (
        Allow(edits=HeaderEdits(set=tuple((f"x-{index}-{'x' * 200}", "") for index in range(25)))), 0
    ),
    "an allowance of somebody with a long name": (Allow(identity="x" * 5000), 0),
    "a denial": (Deny(http_status=403, rule="no"), 1),
    "a denial with long names": (
        Deny(http_status=403, rule="no", headers=tuple((f"x-{index}-{'x' * 200}", "") for index in range(25))), 0
    ),
    "a denial with a cookie": (Deny(http_status=403, rule="no", headers=(("Set-Cookie", "a=b"),)), 0),
    "a denial with much to say": (Deny(http_status=403, rule="no", body="x" * 5000), 0),
}  # fmt: skip


@pytest.mark.parametrize(("decision", "count"), KEPT.values(), ids=KEPT.keys())
def test_what_is_large_or_secret_is_not_kept(decision: Decision, count: int) -> None:
    engine = CheckEngine(Constant(decision))
    engine.check(check("/a").SerializeToString(), NOW)
    assert (len(engine.replies), len(engine.replies.same)) == (count, count)


@pytest.mark.slow
def test_a_decision_never_gets_the_reply_of_one_that_is_gone() -> None:
    body, said = check().SerializeToString(), Saying()
    engine = CheckEngine(said)
    for index in range(10_000):
        # Each may lie in memory where the last one lay, and there are more of them than replies are kept.
        said.decision = deny = Deny(http_status=403, rule="no", headers=(("x-index", str(index)),))
        made = engine.check(body, NOW)
        assert isinstance(made, Answer)
        assert (made.reply, made.decision) == (render_decision(deny), deny)
        assert len(engine.replies.same) <= len(engine.replies) <= MOST_KEPT


class Saying:
    """Says what it is told to."""

    name: ClassVar = "saying"
    decision: Decision = Allow()

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return self.decision
