"""HTTP checks without a network."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.backend_choice import choice_of
from authplane.authserver.engine.http_check import (
    Form,
    ForwardedHeaders,
    HttpAnswer,
    OriginalHeaders,
    Question,
    SameRequest,
    check_http,
    parse_question,
    render_answer,
)
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.decide.denials import RpcDenial

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOST: Final = (b"host", b"shop.example")
TRAEFIK: Final = (
    (b"host", b"authz"),
    (b"x-forwarded-method", b"PUT"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"shop.example"),
    (b"x-forwarded-uri", b"/a?b=c"),
    (b"cookie", b"d"),
)
NGINX: Final = (
    (b"host", b"authz"),
    (b"x-original-method", b"PUT"),
    (b"x-original-url", b"https://shop.example/a?b=c"),
    (b"cookie", b"d"),
)
PUT: Final = Request(
    method="PUT", scheme="https", host="shop.example", path="/a", query="b=c", headers=(("cookie", "d"),)
)


def question(target: str = "/a?b=c", *headers: tuple[bytes, bytes], method: str = "GET") -> Question:
    return Question(method=method, target=target, headers=headers)


def without(headers: tuple[tuple[bytes, bytes], ...], name: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(pair for pair in headers if pair[0] != name)


class Case(NamedTuple):
    form: Form
    question: Question
    want: Request | str


CASES: Final = {
    "Envoy asks with the request itself": Case(
        SameRequest(),
        question("/a?b=c", HOST, (b"X-A", b"1"), (b"x-a", b"2")),
        Request(
            method="GET",
            host="shop.example",
            path="/a",
            query="b=c",
            headers=(("host", "shop.example"), ("x-a", "1"), ("x-a", "2")),
        ),
    ),
    "Envoy's prefix is no part of the path": Case(
        SameRequest(prefix="/check"),
        question("/check/a", HOST),
        Request(method="GET", host="shop.example", path="/a", headers=(("host", "shop.example"),)),
    ),
    "dots after the prefix stay": Case(
        SameRequest(prefix="/check"),
        question("/check/../b//c%2f", HOST),
        Request(method="GET", host="shop.example", path="/../b//c%2f", headers=(("host", "shop.example"),)),
    ),
    "a question without the prefix": Case(
        SameRequest(prefix="/check"), question("/a", HOST), "the path does not start with the prefix"
    ),
    "a prefix that ends in a word": Case(
        SameRequest(prefix="/check"), question("/checked", HOST), "the path does not start with a slash"
    ),
    "nothing after the prefix": Case(SameRequest(prefix="/check"), question("/check", HOST), "the request has no path"),
    "headers that are not expected mean nothing": Case(
        SameRequest(),
        question("/admin", HOST, (b"x-forwarded-uri", b"/public"), (b"x-original-url", b"http://x/public")),
        Request(
            method="GET",
            host="shop.example",
            path="/admin",
            headers=(
                ("host", "shop.example"),
                ("x-forwarded-uri", "/public"),
                ("x-original-url", "http://x/public"),
            ),
        ),
    ),
    "no host": Case(SameRequest(), question("/a"), "the request has no host, or more than one"),
    "two hosts": Case(SameRequest(), question("/a", HOST, HOST), "the request has no host, or more than one"),
    "a host with a slash": Case(SameRequest(), question("/a", (b"host", b"a/b")), "the host has an invalid character"),
    "a whole URL as the target": Case(
        SameRequest(), question("http://evil/admin", HOST), "the path does not start with a slash"
    ),
    "a fragment": Case(SameRequest(), question("/admin#/public", HOST), "the path has a fragment"),
    "a blank in the path": Case(SameRequest(), question("/a b", HOST), "the path has a space or a control character"),
    "a blank in the query": Case(
        SameRequest(), question("/a?b c", HOST), "the path has a space or a control character"
    ),
    "a method that is no token": Case(SameRequest(), question("/a", HOST, method="GE(T"), "the method is not valid"),
    "a header name that is no token": Case(
        SameRequest(), question("/a", HOST, (b"a b", b"")), "a header has an invalid name"
    ),
    "a header value with a line feed": Case(
        SameRequest(), question("/a", HOST, (b"a", b"b\nc")), "a header has an invalid value"
    ),
    "bytes that are not UTF-8 are kept": Case(
        SameRequest(),
        question("/a", HOST, (b"a", b"\xff")),
        Request(method="GET", host="shop.example", path="/a", headers=(("host", "shop.example"), ("a", "\udcff"))),
    ),
    "Traefik names the request in headers": Case(ForwardedHeaders(), question("/verify", *TRAEFIK), PUT),
    "nginx names the request in headers": Case(OriginalHeaders(), question("/verify", *NGINX), PUT),
    "nginx without a method": Case(
        OriginalHeaders(),
        question("/verify", *without(NGINX, b"x-original-method")),
        "the header x-original-method or x-original-url is missing, empty or repeated",
    ),
    "nginx with a path only": Case(
        OriginalHeaders(),
        question("/verify", (b"x-original-method", b"GET"), (b"x-original-url", b"/a")),
        "the header x-original-url is not scheme://host/path",
    ),
    "nginx with a host only": Case(
        OriginalHeaders(),
        question("/verify", (b"x-original-method", b"GET"), (b"x-original-url", b"http://a?x=/b")),
        "the host has an invalid character",
    ),
    **{
        f"Traefik without {name.decode()}": Case(
            ForwardedHeaders(),
            question("/verify", *without(TRAEFIK, name)),
            f"the header {name.decode()} is missing, empty or repeated",
        )
        for name in (b"x-forwarded-method", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-uri")
    },
    "Traefik's header twice": Case(
        ForwardedHeaders(),
        question("/verify", *TRAEFIK, (b"x-forwarded-uri", b"/public")),
        "the header x-forwarded-uri is missing, empty or repeated",
    ),
    "Traefik's header again with underscores": Case(
        ForwardedHeaders(),
        question("/verify", *TRAEFIK, (b"X_Forwarded_Uri", b"/public")),
        "the header x-forwarded-uri is missing, empty or repeated",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_parse_question(case: Case) -> None:
    want = Malformed(reason=case.want) if isinstance(case.want, str) else case.want
    assert parse_question(case.form, case.question) == want


class Told(NamedTuple):
    decision: Decision
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    made: Decision | None = None


RPC_ERROR: Final = '{"jsonrpc":"2.0","id":1,"error":{"code":403,"message":"no"}}'
UNSENDABLE: Final = Deny(http_status=403, rule="unsendable: the header 'a' of the response")
ANSWERS: Final = {
    "an allowance sets, adds and removes": Told(
        Allow(
            edits=HeaderEdits(set=(("Auth-User", "a"),), remove=("authorization", "auth-user", "x")),
            response_headers=(("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")),
        ),
        200,
        (
            ("Auth-User", "a"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("x-envoy-auth-headers-to-remove", "authorization,x"),
        ),
    ),
    "a bare allowance": Told(Allow(), 200),
    "a denial has its status, headers and body": Told(
        Deny(http_status=401, headers=(("WWW-Authenticate", "Basic"),), body="no\n", rule="r"),
        401,
        (("WWW-Authenticate", "Basic"), ("content-type", "text/plain; charset=utf-8")),
        b"no\n",
    ),
    "a denial keeps its own content type": Told(
        Deny(http_status=401, headers=(("Content-Type", "text/html"),), body="<p>", rule="r"),
        401,
        (("Content-Type", "text/html"),),
        b"<p>",
    ),
    "a redirect": Told(
        Deny(http_status=302, headers=(("location", "/login"),), rule="r"), 302, (("location", "/login"),)
    ),
    "a denial with 5xx would be no decision to Envoy": Told(Deny(http_status=500, rule="r"), 403),
    "a denial in its body alone would be an allowance": Told(
        RpcDenial(http_status=200, headers=(("content-type", "application/json"),), body=RPC_ERROR, rule="r"),
        403,
        (("content-type", "application/json"),),
        RPC_ERROR.encode(),
    ),
    "no decision": Told(Unavailable(cause="busy"), 503),
    "an allowance that cannot be sent denies": Told(Allow(response_headers=(("a", "b\r\nc"),)), 403, made=UNSENDABLE),
    "a denial that cannot be sent still denies": Told(
        Deny(http_status=401, headers=(("a", "b\r\nc"),), rule="r"), 403, made=UNSENDABLE
    ),
}


@pytest.mark.parametrize("told", ANSWERS.values(), ids=ANSWERS.keys())
def test_render_answer(told: Told) -> None:
    assert render_answer(PUT, told.decision) == HttpAnswer(
        status=told.status,
        headers=told.headers,
        body=told.body,
        request=PUT,
        decision=told.made or told.decision,
    )


FORMS: Final = st.sampled_from([SameRequest(), SameRequest(prefix="/c"), ForwardedHeaders(), OriginalHeaders()])
NAMES: Final = st.sampled_from([name for name, _ in (*TRAEFIK, *NGINX)]) | st.binary(max_size=8)
VALUES: Final = st.sampled_from([b"/allow", b"GET", b"https", b"http://a/allow"]) | st.binary(max_size=8)


@given(FORMS, st.text(max_size=9), st.text(max_size=9), st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_only_an_allowed_check_has_the_status_200(
    form: Form, method: str, target: str, headers: list[tuple[bytes, bytes]]
) -> None:
    asked = Question(method=method, target=target, headers=tuple(headers))
    made = check_http(choice_of(TestServer(mode=Mode.PATH)), form, asked, NOW)
    assert isinstance(made, HttpAnswer)
    assert (made.status == 200) == isinstance(made.decision, Allow)
    assert made.status != 200 or (isinstance(made.request, Request) and "allow" in made.request.path)
