"""Filters named in code, before the handlers of both kinds of servers."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.support.grpc.acting_filters import Doing, Sleeping
from tests.support.grpc.shop_servers import KINDS, PATHS, PATIENCE, Authority, Cart, Serve, allow, call, deny, refusal

from authplane.grpc import Call, Change, Code, Mutation, Proceed, Stop, ext_authz


@pytest.fixture
def channel_to() -> Iterator[Any]:
    made: list[grpc.Channel] = []

    def connect(port: int) -> grpc.Channel:
        made.append(grpc.insecure_channel(f"127.0.0.1:{port}"))
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.mark.parametrize("kind", KINDS)
def test_without_filters_calls_are_answered_as_ever(serve: Serve, cart: Cart, channel_to: Any, kind: str) -> None:
    channel = channel_to(serve(cart))
    responses, made = call(channel, kind, b"a", metadata=(("x-a", "1"),))
    assert responses == ([b"a", b"a"] if kind == "unary_stream" else [b"a"])
    assert made.code() is grpc.StatusCode.OK
    assert cart.header("x-a") == ["1"]


@pytest.mark.requirement("EA-20")
@pytest.mark.parametrize("kind", KINDS)
def test_one_check_is_made_for_a_call_whatever_its_kind(
    serve: Serve, cart: Cart, authority: Authority, channel_to: Any, kind: str
) -> None:
    channel = channel_to(serve(cart, filters=[ext_authz(authority.target, credentials=None)]))
    responses, _ = call(channel, kind, b"a", b"b")
    assert responses == {"unary_unary": [b"a"], "stream_unary": [b"ab"], "unary_stream": [b"a", b"a"]}.get(
        kind, [b"a", b"b"]
    )
    assert [check.attributes.request.http.path for check in authority.checks] == [PATHS[kind]]


@pytest.mark.requirement("EA-33")
@pytest.mark.parametrize("kind", KINDS)
def test_an_allowed_call_has_the_headers_that_the_service_says(
    serve: Serve, cart: Cart, authority: Authority, channel_to: Any, kind: str
) -> None:
    def decide(_: object) -> Any:
        response = allow(x_user="alice")
        response.ok_response.headers_to_remove.append("x-secret")
        added = response.ok_response.response_headers_to_add.add()
        added.header.key, added.header.value = "x-decided-by", "tests"
        return response

    authority.decide = decide
    channel = channel_to(serve(cart, filters=[ext_authz(authority.target, credentials=None)]))
    responses, made = call(channel, kind, b"a", metadata=(("x-user", "forged"), ("x-secret", "s"), ("x-kept", "k")))
    assert responses
    assert (cart.header("x-user"), cart.header("x-secret"), cart.header("x-kept")) == (["alice"], [], ["k"])
    assert ("x-decided-by", "tests") in [tuple(each) for each in made.initial_metadata()]


@pytest.mark.requirement("EA-31", "EA-32", "EA-36")
@pytest.mark.parametrize("kind", KINDS)
def test_a_denied_call_has_a_status_and_trailers_and_never_reaches_its_handler(
    serve: Serve, cart: Cart, authority: Authority, channel_to: Any, kind: str
) -> None:
    authority.decide = lambda _: deny(401, "who are you", www_authenticate="Bearer")
    channel = channel_to(serve(cart, filters=[ext_authz(authority.target, credentials=None)]))
    error = refusal(channel, kind)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "denied by the authorization service: who are you",
    )
    assert ("www-authenticate", "Bearer") in [tuple(each) for each in error.trailing_metadata()]
    assert tuple(error.initial_metadata()) == ()
    assert cart.calls == 0


def test_a_method_that_does_not_exist_is_no_secret_only_to_those_who_may_call(
    serve: Serve, cart: Cart, authority: Authority, channel_to: Any
) -> None:
    channel = channel_to(serve(cart, filters=[ext_authz(authority.target, credentials=None)]))
    missing: Any = channel.unary_unary(f"/{'shop.Cart'}/missing")
    with pytest.raises(grpc.RpcError) as allowed:
        missing(b"", timeout=PATIENCE)
    authority.decide = lambda _: deny()
    with pytest.raises(grpc.RpcError) as denied:
        missing(b"", timeout=PATIENCE)
    assert [each.value.code() for each in (allowed, denied)] == [
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED,
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_response_headers_know_what_the_handler_sent(
    serve: Serve, cart: Cart, channel_to: Any, stack: str, kind: str
) -> None:
    if stack == "threads":
        cart.before = lambda context: context.send_initial_metadata((("x-a", "handler"), ("x-b", "handler")))
    edits = Doing(
        lambda call: Proceed(
            metadata=call.metadata,
            response_metadata=(("x-c", "added"),),
            response_mutations=(
                Mutation("x-a", "filter", Change.OVERWRITE_OR_ADD),
                Mutation("x-d", "filter", Change.OVERWRITE_IF_EXISTS),
            ),
        )
    )
    _, made = call(channel_to(serve(cart, filters=[edits])), kind, b"a")
    handled = {("x-b", "handler")} if stack == "threads" else set()
    assert {tuple(each) for each in made.initial_metadata()} == {("x-a", "filter"), ("x-c", "added"), *handled}


@pytest.mark.parametrize("fault", [ZeroDivisionError(), None, "no verdict"])
def test_a_filter_that_fails_stops_the_call(
    serve: Serve, cart: Cart, channel_to: Any, fault: Exception | str | None
) -> None:
    def run(_: Call) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return fault

    error = refusal(channel_to(serve(cart, filters=[Doing(run)])))
    assert (error.code(), cart.calls) == (grpc.StatusCode.INTERNAL, 0)


def test_filters_run_in_order_and_the_first_that_stops_ends_it(serve: Serve, cart: Cart, channel_to: Any) -> None:
    seen: list[object] = []

    def first(call: Call) -> Proceed:
        return Proceed(metadata=(*call.metadata, ("x-first", "1")))

    def second(call: Call) -> Stop:
        seen.append(("x-first", "1") in call.metadata)
        return Stop(code=Code.ABORTED, message="second", trailers=(("x-why-bin", b"\0\xff"),))

    def third(call: Call) -> Proceed:
        seen.append("third")
        return Proceed(metadata=call.metadata)

    error = refusal(channel_to(serve(cart, filters=[Doing(first), Doing(second), Doing(third)])))
    assert (error.code(), error.details(), seen) == (grpc.StatusCode.ABORTED, "second", [True])
    assert ("x-why-bin", b"\0\xff") in [tuple(each) for each in error.trailing_metadata()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_ends_at_its_deadline_while_a_filter_waits(serve: Serve, cart: Cart, channel_to: Any, kind: str) -> None:
    error = refusal(channel_to(serve(cart, filters=[Sleeping(60)])), kind, timeout=0.3)
    assert (error.code(), cart.calls) == (grpc.StatusCode.DEADLINE_EXCEEDED, 0)


def test_a_call_that_is_cancelled_lets_go_of_its_check(
    serve: Serve, cart: Cart, authority: Authority, channel_to: Any
) -> None:
    authority.hold.clear()
    channel = channel_to(serve(cart, filters=[ext_authz(authority.target, credentials=None, timeout=None)]))
    multi: Any = channel.unary_unary(PATHS["unary_unary"])
    made = multi.future(b"a")
    assert authority.asked.wait(PATIENCE)
    made.cancel()
    assert authority.given_up.wait(PATIENCE)
    authority.hold.set()
    assert call(channel, "unary_unary", b"b")[0] == [b"b"]
    assert cart.calls == 1
