"""CheckRequest to Request, Decision to CheckResponse."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest
from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from envoy.type.v3 import http_status_pb2
from google.rpc import status_pb2
from tests.support.authservers.answers import parse_check
from tests.support.authservers.check_requests import check

from authplane.authserver.engine.wire import CheckParser, render_decision, with_context
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Peer, Request


def test_every_attribute_reaches_the_request() -> None:
    message = check("/cart?id=1&x=2", headers={"User-Agent": "test", ":authority": "shop.example"}, context={"a": "b"})
    message.attributes.request.time.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    message.attributes.source.principal = "spiffe://mesh/web"
    message.attributes.source.address.socket_address.address = "10.0.0.1"
    message.attributes.source.address.socket_address.port_value = 4711
    message.attributes.destination.address.pipe.path = "/run/web.sock"
    assert parse_check(message.SerializeToString()) == Request(
        method="GET",
        scheme="https",
        host="shop.example",
        path="/cart",
        query="id=1&x=2",
        headers=((":authority", "shop.example"), ("user-agent", "test")),
        context={"a": "b"},
        id="7",
        source=Peer(principal="spiffe://mesh/web", address="10.0.0.1", port=4711),
        destination=Peer(address="/run/web.sock"),
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


@pytest.mark.requirement("E08")
def test_headers_are_read_from_both_forms_with_every_value_and_raw_bytes() -> None:
    message = check(headers={"x-t": "1,2", "accept": "*/*"})
    message.attributes.request.http.header_map.headers.extend(
        [
            base_pb2.HeaderValue(key="X-T", value="1"),
            base_pb2.HeaderValue(key="x-t", raw_value=b"2"),
            base_pb2.HeaderValue(key="x-raw", raw_value=b"\xff\xc3\xa9"),
            base_pb2.HeaderValue(key="accept", value="*/*"),
        ]
    )
    request = parse_check(message.SerializeToString())
    assert isinstance(request, Request)
    assert request.headers == (
        ("x-t", "1"), ("x-t", "2"), ("x-raw", "\udcffé"), ("accept", "*/*"), ("x-t", "1,2"),
    )  # fmt: skip
    assert request.values("x-t") == ("1", "2", "1,2")


@pytest.mark.parametrize("path", ["/pkg.Svc/Method", "/pkg.Svc/M\xe9thode", "*"])
def test_a_grpc_service_may_send_no_host_and_an_empty_header_map(path: str) -> None:
    message = check(path, headers={})
    message.attributes.request.http.host = ""
    message.attributes.request.http.header_map.SetInParent()
    request = parse_check(message.SerializeToString())
    assert isinstance(request, Request)
    assert (request.host, request.headers) == ("", ())


def _parsed(message: pb.CheckRequest) -> Request:
    request = parse_check(message.SerializeToString())
    assert isinstance(request, Request)
    return request


HEADERS: Final = {
    "none of ours": ({"user-agent": "test", "authorization": "x"}, ()),
    "ours in either spelling": ({"auth-handler": "x", "auth_realm": "y"}, ("auth-handler", "auth_realm")),
    "ours in capitals": ({"Auth-Handler": "x", "AUTH_REALM": "y"}, ("auth-handler", "auth_realm")),
    "one that only begins alike": ({"authx": "x", "auth-": "y"}, ("auth-",)),
}


@pytest.mark.parametrize(("headers", "want"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_like_ours_are_found_the_first_time_and_every_time(
    headers: dict[str, str], want: tuple[str, ...]
) -> None:
    for _ in range(3):
        assert _parsed(check(headers=headers)).auth_names == want
        raw = check(headers={})
        raw.attributes.request.http.header_map.headers.extend(
            base_pb2.HeaderValue(key=name, value=value) for name, value in headers.items()
        )
        assert sorted(_parsed(raw).auth_names) == sorted(want)


@pytest.mark.parametrize("name", ["mcp_name", "MCP_Name"])
def test_names_with_underscores_are_found_the_first_time_and_every_time(name: str) -> None:
    for _ in range(3):
        made = _parsed(check(headers={"x-a": "1", name: "2"}))
        assert (made.odd_names, made.headers_for(())) == (("mcp_name",), (("mcp_name", "2"), ("x-a", "1")))


def test_what_is_said_beside_a_check_is_in_its_context_unless_the_check_says_it_itself() -> None:
    bare, own = check(), check(context={"key": "own", "other": "x"})
    for message, want in ((bare, {"key": "beside"}), (own, {"key": "own", "other": "x"})):
        made = parse_check(with_context(message.SerializeToString(), "key", "beside"))
        assert isinstance(made, Request)
        assert (made.context, made.path, made.headers) == (want, "/", (("user-agent", "test"),))


def test_a_name_that_was_fit_once_makes_no_other_fit() -> None:
    assert _parsed(check(headers={"x-a": "1"})).values("x-a") == ("1",)
    message = check(headers={"x-a": "1", "x-a ": "2"})
    assert parse_check(message.SerializeToString()) == Malformed(reason="a header has an invalid name")


def test_a_header_is_found_in_any_case_and_any_number_of_times() -> None:
    for name in ("authorization", "Authorization"):
        for _ in range(2):
            request = _parsed(check(headers={name: "a", "x": "b"}))
            assert (request.values("authorization"), request.values("absent")) == (("a",), ())
            assert request.values("authorization") == ("a",)


def test_ever_new_names_of_headers_do_not_pile_up() -> None:
    parser = CheckParser()
    for number in range(5000):
        request = parser.parse(check(headers={f"x-new-{number}": "1"}).SerializeToString())
        assert isinstance(request, Request)
        assert request.values(f"x-new-{number}") == ("1",)
    assert len(parser.plain) <= 4096


def test_a_request_has_no_attributes_but_its_own() -> None:
    request = _parsed(check())
    for name in ("colour", "_colour"):
        assert not hasattr(request, name)
        assert not hasattr(Request(method="GET", path="/"), name)


def test_a_copy_with_other_headers_forgets_those_of_the_message() -> None:
    changed = replace(_parsed(check(headers={"auth-handler": "x"})), headers=(("x-t", "1"),))
    assert (changed.values("x-t"), changed.values("auth-handler"), changed.auth_names) == (("1",), (), ())


def _without_attributes(message: pb.CheckRequest) -> None:
    message.ClearField("attributes")


def _without_request(message: pb.CheckRequest) -> None:
    message.attributes.ClearField("request")


def _without_http(message: pb.CheckRequest) -> None:
    message.attributes.request.ClearField("http")


def _without_method(message: pb.CheckRequest) -> None:
    message.attributes.request.http.method = ""


def _with_path(path: str) -> Callable[[pb.CheckRequest], None]:
    def change(message: pb.CheckRequest) -> None:
        message.attributes.request.http.path = path

    return change


def _without_headers(message: pb.CheckRequest) -> None:
    message.attributes.request.http.headers.clear()


def _with_header(name: str) -> Callable[[pb.CheckRequest], None]:
    def change(message: pb.CheckRequest) -> None:
        message.attributes.request.http.headers[name] = "x"

    return change


def _with_raw_header(name: str) -> Callable[[pb.CheckRequest], None]:
    def change(message: pb.CheckRequest) -> None:
        message.attributes.request.http.header_map.headers.append(base_pb2.HeaderValue(key=name, raw_value=b"x"))

    return change


def _with_host(message: pb.CheckRequest) -> None:
    message.attributes.request.http.host = "a b"


MALFORMED: Final[dict[str, tuple[Callable[[pb.CheckRequest], None], str]]] = {
    "no attributes": (_without_attributes, "the request has no method"),
    "no request": (_without_request, "the request has no method"),
    "no http": (_without_http, "the request has no method"),
    "no method": (_without_method, "the request has no method"),
    "no path": (_with_path(""), "the request has no path"),
    "only a query": (_with_path("?allow"), "the request has no path"),
    "an absolute path": (_with_path("http://evil/admin"), "the path does not start with a slash"),
    "a line break in the path": (_with_path("/a\nb"), "the path has a space or a control character"),
    "a blank in the host": (_with_host, "the host has a space or a control character"),
    "no headers in either form": (_without_headers, "the request has no headers"),
    "an empty header name": (_with_header(""), "a header has an invalid name"),
    "a header name with a blank": (_with_header("auth-username "), "a header has an invalid name"),
    "an empty name of a raw header": (_with_raw_header(""), "a header has an invalid name"),
    "a raw header's name with a blank": (_with_raw_header("auth-username "), "a header has an invalid name"),
}


@pytest.mark.requirement("E08")
@pytest.mark.parametrize(("change", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_an_incomplete_check_is_malformed(change: Callable[[pb.CheckRequest], None], reason: str) -> None:
    message = check()
    change(message)
    assert parse_check(message.SerializeToString()) == Malformed(reason=reason)


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05\x12\x03\x12\x01\xff"])
def test_bytes_that_are_no_message_are_malformed(body: bytes) -> None:
    assert parse_check(body) == Malformed(reason="the message is not a CheckRequest")


def test_a_time_that_no_calendar_has_is_left_out() -> None:
    message = check()
    message.attributes.request.time.seconds = 2**62
    request = parse_check(message.SerializeToString())
    assert isinstance(request, Request)
    assert request.time is None


def _option(name: str, value: str) -> base_pb2.HeaderValueOption:
    option = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value))
    option.append.value = False
    return option


def _status(code: int) -> http_status_pb2.HttpStatus:
    return http_status_pb2.HttpStatus(code=http_status_pb2.StatusCode.ValueType(code))


RESPONSES: Final[dict[str, tuple[Decision, pb.CheckResponse]]] = {
    "allowing says so in words, not by being empty": (
        Allow(),
        pb.CheckResponse(status=status_pb2.Status(code=0), ok_response=pb.OkHttpResponse()),
    ),
    "headers replace what the client sent": (
        Allow(edits=HeaderEdits(set=(("X-User", "ada"),), remove=("x-role",))),
        pb.CheckResponse(
            status=status_pb2.Status(code=0),
            ok_response=pb.OkHttpResponse(headers=[_option("X-User", "ada")], headers_to_remove=["x-role"]),
        ),
    ),
    "what is set is not removed": (
        Allow(edits=HeaderEdits(set=(("X-User", "ada"),), remove=("x-user",))),
        pb.CheckResponse(
            status=status_pb2.Status(code=0), ok_response=pb.OkHttpResponse(headers=[_option("X-User", "ada")])
        ),
    ),
    "401 is unauthenticated": (
        Deny(http_status=401, rule="r"),
        pb.CheckResponse(status=status_pb2.Status(code=16), denied_response=pb.DeniedHttpResponse(status=_status(401))),
    ),
    "other denials are permission denied, and a header can stand twice": (
        Deny(http_status=302, headers=(("Location", "/in"), ("Set-Cookie", "a=1"), ("set-cookie", "b=2")), rule="r"),
        pb.CheckResponse(
            status=status_pb2.Status(code=7),
            denied_response=pb.DeniedHttpResponse(
                status=_status(302),
                headers=[
                    _option("Location", "/in"),
                    _option("Set-Cookie", "a=1"),
                    _option("set-cookie", "b=2"),
                ],
            ),
        ),
    ),
    "no decision is an error": (
        Unavailable(cause="the directory is down"),
        pb.CheckResponse(status=status_pb2.Status(code=14), error_response=pb.DeniedHttpResponse(status=_status(503))),
    ),
}


@pytest.mark.requirement("E02")
@pytest.mark.parametrize(("decision", "want"), RESPONSES.values(), ids=RESPONSES.keys())
def test_render_decision(decision: Decision, want: pb.CheckResponse) -> None:
    assert pb.CheckResponse.FromString(render_decision(decision)) == want


@pytest.mark.requirement("E07")
@pytest.mark.parametrize("status", [-1, 0, 99, 100, 200, 204, 299, 302, 399, 600, 1000])
def test_a_denial_cannot_look_like_a_success(status: int) -> None:
    with pytest.raises(ValueError, match=f"a denial cannot have the HTTP status {status}"):
        Deny(http_status=status, rule="r")


@pytest.mark.requirement("E08")
def test_headers_in_both_forms_are_all_seen_whatever_was_seen_before() -> None:
    message, parser = check("/a", headers={"content-type": "application/json"}), CheckParser()
    assert isinstance(parser.parse(message.SerializeToString()), Request)
    assert "content-type" in parser.plain
    message.attributes.request.http.header_map.headers.extend(
        [
            base_pb2.HeaderValue(key="content-type", raw_value=b"text/plain"),
            base_pb2.HeaderValue(key="mcp_name", raw_value=b"add"),
        ]
    )
    made = parser.parse(message.SerializeToString())
    assert isinstance(made, Request)
    assert sorted(made.values("content-type")) == ["application/json", "text/plain"]
    assert made.odd_names == ("mcp_name",)
    assert isinstance(made.headers_for(("content-type",)), tuple)


ADDRESSES: Final = {
    "a socket": address_pb2.Address(socket_address=address_pb2.SocketAddress(address="192.0.2.1", port_value=1)),
    "a unix socket": address_pb2.Address(pipe=address_pb2.Pipe(path="@envoy")),
    "none": address_pb2.Address(),
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES.keys())
def test_the_address_of_the_source_is_the_same_without_the_rest_of_it(address: address_pb2.Address) -> None:
    message = check("/a", headers={"user-agent": "test"})
    message.attributes.source.address.CopyFrom(address)
    requests = [CheckParser().parse(message.SerializeToString()) for _ in range(2)]
    assert isinstance(requests[0], Request)
    assert isinstance(requests[1], Request)
    assert requests[0].source_address == requests[1].source.address == requests[1].source_address
