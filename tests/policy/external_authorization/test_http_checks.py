"""Questions over HTTP, without a network: what goes into one, and what of an answer counts."""

from collections.abc import Mapping

import pytest

from authplane.core.header_edits import HeaderEdits
from authplane.core.names import ObjectName
from authplane.policy.check.request import Request
from authplane.policy.external_authorization.check_hops import HOPS, HOPS_HEADER, hops_of
from authplane.policy.external_authorization.http_checks import HttpQuestion, build_question, read_answer
from authplane.policy.external_authorization.service_replies import added_headers, build_declined, client_headers
from authplane.policy.rules.external_service import ExternalService, OverHttp
from authplane.policy.verdicts.effects import Ask, Declined, Granted, NoAnswer

FRAMING = (
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
)  # fmt: skip
"""What belongs to one connection or to the frame of one message."""


def ask(protocol: OverHttp, *, most_body: int = 0, method: str = "POST", **request: object) -> Ask:
    service = ExternalService(service=ObjectName("default", "authz"), port=9000, protocol=protocol, most_body=most_body)
    whole: dict[str, object] = {"method": method, "path": "/mcp", "host": "mcp.example", "headers": ()} | request
    return Ask(service=service, request=Request(**whole), deadline=0.0)  # type: ignore[arg-type]  # as above


def question(protocol: OverHttp, **request: object) -> HttpQuestion:
    built = build_question(ask(protocol, **request), protocol)  # type: ignore[arg-type]  # as above
    assert isinstance(built, HttpQuestion)
    return built


@pytest.mark.parametrize("name", FRAMING)
def test_a_header_of_one_connection_is_not_sent_along_even_if_it_is_listed(name: str) -> None:
    protocol = OverHttp(request_headers=frozenset({name, "x-a"}))
    built = question(protocol, headers=((name, "told"), ("x-a", "a")))
    assert built.headers == (("host", "mcp.example"), ("x-a", "a"), ("content-length", "0"), (HOPS_HEADER, "1"))


@pytest.mark.parametrize("name", FRAMING)
def test_a_header_of_one_connection_is_not_taken_over_from_an_answer(name: str) -> None:
    for protocol in (OverHttp(), OverHttp(response_headers=frozenset({name, "x-a"}))):
        assert read_answer(protocol, 200, ((name, "told"), ("x-a", "a")), b"") == Granted(
            HeaderEdits(set=(("x-a", "a"),))
        )


def test_credentials_are_sent_along_and_the_rest_only_if_it_is_listed() -> None:
    headers = (("authorization", "Bearer t"), ("cookie", "a=1"))
    assert question(OverHttp(), headers=headers).headers == (
        ("host", "mcp.example"),
        ("authorization", "Bearer t"),
        ("content-length", "0"),
        (HOPS_HEADER, "1"),
    )
    assert ("cookie", "a=1") in question(OverHttp(request_headers=frozenset({"cookie"})), headers=headers).headers


def test_a_body_is_sent_along_where_the_service_is_to_have_it() -> None:
    whole = question(OverHttp(path="/verify"), most_body=1, body=b"{}", query="a=1")
    assert (whole.target, whole.body, dict(whole.headers)["content-length"]) == ("/verify/mcp?a=1", b"{}", "2")
    without = question(OverHttp(), body=b"{}")
    assert (without.target, without.body, dict(without.headers)["content-length"]) == ("/mcp", b"", "0")


@pytest.mark.parametrize(
    ("method", "path"),
    [("CONNECT", "/mcp"), ("GET /a", "/mcp"), ("", "/mcp"), ("GET", "/a/../b"), ("GET", "/a//b"), ("GET", "*")],
)
def test_a_request_that_cannot_be_repeated_is_not_asked_about(method: str, path: str) -> None:
    protocol = OverHttp()
    assert build_question(ask(protocol, method=method, path=path), protocol) == NoAnswer(
        "the request cannot be forwarded to the service"
    )


REMOVALS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "one": ("X-Secret", ("x-secret",)),
    "several, and blanks": (" b ,, A,b ", ("a", "b")),
    "no names": ("a b, c:d", ()),
    "what is set stays": ("x-a", ()),
}


@pytest.mark.parametrize(("value", "removed"), REMOVALS.values(), ids=REMOVALS.keys())
def test_a_service_says_which_headers_must_not_go_on(value: str, removed: tuple[str, ...]) -> None:
    answer = (("x-a", "1"), ("x-a", "2"), ("x-envoy-auth-headers-to-remove", value))
    assert read_answer(OverHttp(), 200, answer, b"") == Granted(HeaderEdits(set=(("x-a", "1, 2"),), remove=removed))


@pytest.mark.parametrize("status", [100, 199, 201, 204, 299, 302, 403, 500])
def test_only_200_grants(status: int) -> None:
    assert read_answer(OverHttp(), status, (("x-a", "a"),), b"no") == Declined(
        http_status=status, headers=(("x-a", "a"),), body="no"
    )


# --- What a client is told


@pytest.mark.parametrize(
    "name",
    [
        "date", "proxy-authenticate", "proxy-authentication-info", "proxy-connection", "server", "x-authplane-a",
        "x-envoy-a", "X-Envoy-A", "content-length", "transfer-encoding", "connection", "x a", ":status",
    ],
)  # fmt: skip
def test_what_a_service_says_of_itself_or_to_proxies_reaches_no_client(name: str) -> None:
    assert client_headers([(name, "told"), ("X-A", "\ta ")]) == (("x-a", "a"),)
    assert added_headers([(name, "told"), ("X-A", "\ta ")]) == (("x-a", "a"),)


def test_headers_for_a_client_go_on_up_to_64_of_them_and_32_kib() -> None:
    many = [("x-a", "a")] * 64
    assert client_headers(many) == tuple(many)
    assert client_headers([*many, ("x-a", "a")]) == ()
    long = [("x-a", "a" * 4093)] * 8
    assert client_headers(long) == tuple(long)
    assert client_headers([*long[:-1], ("x-ab", "a" * 4093)]) == ()


def test_what_is_added_to_the_answer_of_the_origin_does_not_say_how_to_read_it() -> None:
    said = [("content-type", "a/b"), ("content-language", "en"), ("x-a", "a")]
    assert added_headers(said) == (("x-a", "a"),)
    assert client_headers(said) == tuple(said)


BODIES: Mapping[str, tuple[tuple[tuple[str, str], ...], bytes | None, Declined]] = {
    "a text": ((("content-type", "a/b"),), b"no", Declined(headers=(("content-type", "a/b"),), body="no")),
    "an encoding that is none": (
        (("content-encoding", "Identity"),), b"no", Declined(headers=(("content-encoding", "Identity"),), body="no")
    ),
    "an encoding": ((("content-encoding", "gzip"), ("x-a", "a")), b"no", Declined(headers=(("x-a", "a"),))),
    "nothing": ((("content-type", "a/b"), ("x-a", "a")), b"", Declined(headers=(("x-a", "a"),))),
    "too much": ((("content-type", "a/b"), ("x-a", "a")), None, Declined(headers=(("x-a", "a"),))),
    "no text": ((("content-type", "a/b"), ("x-a", "a")), b"\xff", Declined(headers=(("x-a", "a"),))),
}  # fmt: skip


@pytest.mark.parametrize(("headers", "body", "want"), BODIES.values(), ids=BODIES.keys())
def test_a_denial_has_a_body_if_a_client_can_read_it(
    headers: tuple[tuple[str, str], ...], body: bytes | None, want: Declined
) -> None:
    assert build_declined(403, headers, body) == want


# --- How often a question was passed on


@pytest.mark.parametrize(
    ("told", "hops"),
    [(None, 0), ("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 3), ("-1", 3), ("+1", 3), ("01", 3), ("", 3), ("x", 3)],
)
def test_what_is_no_number_of_hops_counts_as_the_most(told: str | None, hops: int) -> None:
    assert HOPS == "authplane.hops"
    by_context = Request(method="GET", path="/", context={} if told is None else {"authplane.hops": told})
    by_header = Request(method="GET", path="/", headers=() if told is None else (("x-authplane-hops", told),))
    assert (hops_of(by_context), hops_of(by_header)) == (hops, hops)


def test_of_two_numbers_of_hops_the_larger_counts() -> None:
    both = Request(method="GET", path="/", headers=(("x-authplane-hops", "1"),), context={"authplane.hops": "2"})
    assert hops_of(both) == 2
