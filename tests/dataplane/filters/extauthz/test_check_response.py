from typing import Any, Final, NamedTuple

import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.driven_calls import regex
from tests.support.dataplane.ext_authz_messages import allowed, denied, header

from authplane.authserver.engine.wire import render_decision
from authplane.core.header_edits import HeaderEdits
from authplane.dataplane.filters.calls import Change, Code, Mutation
from authplane.dataplane.filters.extauthz.check_messages.wire import CACHE_NAMESPACE, read_reply
from authplane.dataplane.filters.extauthz.service_decision import Allow, Deny, Failed, Outcome
from authplane.dataplane.filters.headers import LONGEST, Edits, Rules
from authplane.policy.check.decision import Allow as PolicyAllow

OVERWRITE: Final = Change.OVERWRITE_OR_ADD


def read(message: pb.CheckResponse, rules: Rules = Rules(), *, a102_append: bool = False) -> Outcome:  # noqa: B008 (frozen)
    return read_reply(message.SerializeToString(), rules, a102_append=a102_append)


@pytest.mark.requirement("EA-30")
def test_status_ok_allows_even_if_it_is_not_set() -> None:
    assert read_reply(b"", Rules()) == Allow()
    assert read(pb.CheckResponse()) == Allow()
    explicit = pb.CheckResponse()
    explicit.status.code = 0
    assert read(explicit) == Allow()


@pytest.mark.requirement("EA-30")
@pytest.mark.parametrize("fields", [(), ("status",), ("ok_response",), ("status", "ok_response")])
def test_an_allowance_that_says_nothing_else_changes_nothing(fields: tuple[str, ...]) -> None:
    message = pb.CheckResponse()
    for each in fields:
        getattr(message, each).SetInParent()
    # A field that nobody knows makes it other bytes with the same meaning.
    unknown = b"" if not fields else b"\xf8\x07\x01"
    assert read(message) == read_reply(message.SerializeToString() + unknown, Rules()) == Allow()


@pytest.mark.requirement("EA-30")
@pytest.mark.parametrize("code", [1, 7, 16, 99, -1])
def test_any_other_status_denies(code: int) -> None:
    message = pb.CheckResponse()
    message.status.code = code
    message.ok_response.headers.append(header("x-user"))
    want = Deny(code=Code.PERMISSION_DENIED, message="denied by the authorization service")
    assert read(message) == want


@pytest.mark.parametrize("reply", [b"\xff", b"\x0a\x05", b"rubbish", b"\x08\x96\x01", b"\x32\x02hi", b"<html>" * 3])
def test_rubbish_is_no_decision(reply: bytes) -> None:
    assert isinstance(read_reply(reply, Rules()), Failed)


class Denial(NamedTuple):
    status: int
    code: Code


DENIALS: Final = {
    "unset": Denial(0, Code.PERMISSION_DENIED),
    "401": Denial(401, Code.UNAUTHENTICATED),
    "403": Denial(403, Code.PERMISSION_DENIED),
    "404": Denial(404, Code.UNIMPLEMENTED),
    "503": Denial(503, Code.UNAVAILABLE),
    "200 can never be a call that succeeded": Denial(200, Code.UNKNOWN),
    "a status that nobody knows": Denial(999, Code.UNKNOWN),
}


@pytest.mark.requirement("EA-31")
@pytest.mark.parametrize("case", DENIALS.values(), ids=DENIALS.keys())
def test_the_code_of_a_denial_comes_from_its_http_status(case: Denial) -> None:
    want = Deny(code=case.code, message="denied by the authorization service: not you")
    assert read(denied(case.status, message="not you")) == want


@pytest.mark.requirement("EA-31")
def test_the_message_is_cut_and_escaped_and_the_body_ignored() -> None:
    message = denied(403, message="a\nb" + "c" * 5000)
    message.denied_response.body = "body"
    found = read(message)
    assert isinstance(found, Deny)
    assert found.message.startswith("denied by the authorization service: a\\nbccc")
    assert len(found.message) < 1100


@pytest.mark.requirement("EA-32")
def test_headers_of_a_denial_become_trailers_as_if_there_were_none_before() -> None:
    message = denied(
        401,
        header("WWW-Authenticate", "Bearer"),
        header("x", "1"),
        header("x", "2"),
        header("y", "1", 3),
        header("z", "1", 1),
        header("z", "2", 1),
        header(":status", "200"),
    )
    found = read(message)
    assert isinstance(found, Deny)
    assert found.trailers == (("www-authenticate", "Bearer"), ("x", "2"), ("z", "1"))
    found = read(message, a102_append=True)
    assert isinstance(found, Deny)
    assert found.trailers == (("www-authenticate", "Bearer"), ("x", "1"), ("x", "2"), ("z", "1"))
    found = read(message, Rules(allow=regex("x")))
    assert isinstance(found, Deny)
    assert found.trailers == (("x", "2"),)


@pytest.mark.requirement("EA-32", "HM-9")
@pytest.mark.parametrize("bad", [header("x y"), header("x", "\n"), header("", "a"), header("x", "v", 9)])
def test_an_invalid_header_of_a_denial_fails_the_check(bad: object) -> None:
    assert isinstance(read(denied(401, header("a"), bad)), Failed)  # type: ignore[arg-type]


@pytest.mark.requirement("EA-33")
def test_an_allow_edits_the_request_and_the_response() -> None:
    message = allowed(
        headers=[header("X-User", "ann"), header("b", "1", 1)],
        remove=["X-Secret", "c"],
        response=[header("r", "1"), header("s", "1"), header("t", "1", 2), header("u", "1")],
    )
    assert read(message) == Allow(
        edits=Edits(
            mutations=(Mutation("x-user", "ann", OVERWRITE), Mutation("b", "1", Change.ADD_IF_ABSENT)),
            removals=("x-secret", "c"),
        ),
        response_metadata=(("r", "1"), ("s", "1")),
        response_mutations=(Mutation("t", "1", OVERWRITE), Mutation("u", "1")),
    )


@pytest.mark.requirement("E02")
def test_a_header_without_an_append_action_replaces_that_of_the_client_unless_the_program_wants_otherwise() -> None:
    message = allowed(headers=[header("x-user", "ann")])
    assert read(message) == Allow(edits=Edits(mutations=(Mutation("x-user", "ann", OVERWRITE),)))
    assert read(message, a102_append=True) == Allow(edits=Edits(mutations=(Mutation("x-user", "ann"),)))
    message.ok_response.headers[0].append.value = True
    assert read(message) == Allow(edits=Edits(mutations=(Mutation("x-user", "ann"),)))


GOOD: Final = {"headers": [header("good")], "remove": ["gone"], "response": [header("more")]}
BAD: Final = {
    "a name that is none": {"headers": [header("good"), header("x y")]},
    "a value with a line break": {"headers": [header("x", "a\r\nb")]},
    "a value that is too long": {"headers": [header("x", "a" * (LONGEST + 1))]},
    "a removal that is no name": {"remove": ["gone", "x y"]},
    "a removal of nothing": {"remove": [""]},
    "a response header that is none": {"response": [header("x y")]},
    "an action that nobody knows": {"response": [header("x", "v", 9)]},
}


@pytest.mark.requirement("HM-9", "EA-33")
@pytest.mark.parametrize("part", BAD.values(), ids=BAD.keys())
def test_one_invalid_edit_fails_the_check_as_a_whole(part: dict[str, list[object]]) -> None:
    assert isinstance(read(allowed(**{**GOOD, **part})), Failed)  # type: ignore[arg-type]


@pytest.mark.requirement("HM-6")
@pytest.mark.parametrize("part", ["headers", "remove", "response"])
def test_what_rules_disallow_is_skipped_or_fails_the_check(part: str) -> None:
    parts = {part: ["x-no"] if part == "remove" else [header("x-no")]}
    assert read(allowed(**parts), Rules(disallow=regex("x-no"))) == Allow()
    failing = Rules(disallow=regex("x-no"), disallow_is_error=True)
    assert read(allowed(**parts), failing) == Failed("header 'x-no' must not be changed")
    # Names count in lower case, however a service writes them.
    capitals = {part: ["X-No"] if part == "remove" else [header("X-No")]}
    assert read(allowed(**capitals), Rules(disallow=regex("x-no"))) == Allow()
    assert read(allowed(**capitals), failing) == Failed("header 'x-no' must not be changed")


@pytest.mark.requirement("E34")
def test_protected_headers_stay_as_they_are() -> None:
    names = [
        ":path",
        ":Authority",
        "host",
        "HOST",
        "grpc-timeout",
        "Grpc-Status",
        "te",
        "TE",
        "content-type",
        "Content-Type",
    ]
    message = allowed(headers=[header(name, "evil") for name in names], remove=names)
    assert read(message) == Allow()


@pytest.mark.requirement("EA-34")
def test_what_does_not_count_is_ignored() -> None:
    message = allowed(headers=[header("x-user")])
    message.ok_response.query_parameters_to_set.add(key="a", value="b")
    message.ok_response.query_parameters_to_remove.append("c")
    message.ok_response.dynamic_metadata.update({"a": 1})
    message.dynamic_metadata.update({"a": 1})
    assert read(message) == Allow(edits=Edits(mutations=(Mutation("x-user", "v", OVERWRITE),)))
    contradiction = denied(401)
    contradiction.ok_response.headers.append(header("x y"))
    assert read(contradiction) == Deny(code=Code.PERMISSION_DENIED, message="denied by the authorization service")


CONTRADICTIONS: Final = {
    "no status": "denied_response { status { code: Unauthorized } }",
    "no status and no content": "denied_response {}",
    "an empty status": "status {} denied_response { status { code: Forbidden } }",
    "status OK": 'status { code: 0 message: "no" } denied_response {}',
    "a denial that calls itself 200": "denied_response { status { code: OK } }",
    "invalid headers": 'denied_response { headers { header { key: "x y" } } }',
    "more metadata": 'denied_response {} dynamic_metadata { fields { key: "a" value { bool_value: true } } }',
}


@pytest.mark.requirement("EA-34")
@pytest.mark.parametrize("text", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_denial_whose_status_is_not_one_is_a_failed_check(text: str) -> None:
    message = text_format.Parse(text, pb.CheckResponse())
    assert read(message) == Failed("the response has a denied_response, but its status is OK or not set")


@pytest.mark.requirement("EA-35")
@pytest.mark.parametrize("code", [0, 7, 14])
def test_an_error_response_is_no_decision(code: int) -> None:
    message = pb.CheckResponse()
    message.status.code = code
    message.error_response.status.code = 503  # type: ignore[assignment]
    assert read(message) == Failed("the authorization service reported a failure")


class Age(NamedTuple):
    metadata: dict[str, Any]
    want: float | None


AGES: Final = {
    "nothing": Age({}, None),
    "others": Age({"other": {"max_age": 1}}, None),
    "seconds": Age({CACHE_NAMESPACE: {"max_age": 2.5}}, 2.5),
    "zero": Age({CACHE_NAMESPACE: {"max_age": 0}}, 0.0),
    "negative": Age({CACHE_NAMESPACE: {"max_age": -1}}, 0.0),
    "not a number": Age({CACHE_NAMESPACE: {"max_age": "long"}}, 0.0),
    "NaN": Age({CACHE_NAMESPACE: {"max_age": float("nan")}}, 0.0),
    "no age": Age({CACHE_NAMESPACE: {}}, 0.0),
    "no object": Age({CACHE_NAMESPACE: "x"}, 0.0),
}


@pytest.mark.parametrize("case", AGES.values(), ids=AGES.keys())
def test_the_service_sets_how_long_a_decision_is_cached(case: Age) -> None:
    for message in (allowed(), denied(403)):
        message.dynamic_metadata.update(case.metadata)
        found = read(message)
        assert not isinstance(found, Failed)
        assert found.max_age == case.want


def test_what_our_own_server_says_can_be_done() -> None:
    edits = HeaderEdits(set=(("Auth-Username", "ann"),), remove=("auth_username", "auth-realm"))
    decision = PolicyAllow(edits=edits, identity="ann", response_headers=())
    assert read_reply(render_decision(decision), Rules()) == Allow(
        edits=Edits(mutations=(Mutation("auth-username", "ann", OVERWRITE),), removals=("auth_username", "auth-realm"))
    )


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_raise_and_none_allow_by_chance(data: bytes, after: bool) -> None:
    found = read_reply(denied(403).SerializeToString() + data if after else data, Rules())
    assert isinstance(found, Allow | Deny | Failed)
    if isinstance(found, Allow) and not after and data:
        message = pb.CheckResponse.FromString(data)
        assert message.status.code == 0
        assert message.ListFields()
