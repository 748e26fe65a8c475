"""What happens when services die, hang or talk rubbish, and under many calls at once."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from h2.exceptions import ProtocolError
from tests.support.clients.raw_h2 import call_headers, frame, raw_client
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import (
    PATHS,
    PATIENCE,
    Authority,
    Cart,
    Serve,
    allow,
    authorizing,
    call,
    deny,
    refusal,
)
from tests.support.grpc.xds_resources import ext_authz as xds_ext_authz
from tests.support.grpc.xds_resources import listener, manager
from tests.support.grpc.xds_routes import routes, served
from tests.support.grpc.xds_servers import Served, xds_serving

from authplane.dataplane.runtime.calls.grpcio_internals import cygrpc
from authplane.grpc import Caching, FailOpen, ext_authz
from authplane.runtime.servers.listen import TcpAddress

MARK = "x-envoy-auth-failure-mode-allowed"


def hang(authority: Authority) -> None:
    authority.hold.clear()


def rubbish(authority: Authority) -> None:
    authority.decide = lambda _: b"\xff\xff\xff"


def something_else(authority: Authority) -> None:
    # A message of another kind: a field that a CheckResponse does not have.
    authority.decide = lambda _: b"\x7a\x03abc"


def fail(authority: Authority) -> None:
    def decide(_: object) -> bytes:
        raise RuntimeError

    authority.decide = decide


def bad_header(authority: Authority) -> None:
    def decide(_: object) -> bytes:
        return allow(x_user="a\nb").SerializeToString()

    authority.decide = decide


def denial_without_status(authority: Authority) -> None:
    def decide(_: object) -> pb.CheckResponse:
        answer = deny(401)
        answer.ClearField("status")
        return answer

    authority.decide = decide


FAULTS: dict[str, Callable[[Authority], None]] = {
    "hangs": hang,
    "answers rubbish": rubbish,
    "answers something else": something_else,
    "fails": fail,
    "wants an impossible header": bad_header,
    "denies without a status": denial_without_status,
}


@pytest.mark.slow
@pytest.mark.requirement("EA-5", "EA-36")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_without_a_decision_calls_are_refused(
    serve: Serve, cart: Cart, authority: Authority, fault: Callable[[Authority], None]
) -> None:
    fault(authority)
    port = serve(cart, filters=[ext_authz(authority.target, credentials=None, timeout=0.3)])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        error = refusal(channel)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "the authorization service made no decision",
    )
    assert cart.calls == 0


@pytest.mark.slow
@pytest.mark.requirement("EA-4", "EA-5")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_who_wants_it_so_gets_calls_without_a_decision_and_they_are_marked(
    serve: Serve, cart: Cart, authority: Authority, fault: Callable[[Authority], None]
) -> None:
    fault(authority)
    asks = ext_authz(authority.target, credentials=None, timeout=0.3, on_failure=FailOpen(mark_request=True))
    port = serve(cart, filters=[asks])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert call(channel, "unary_unary", b"a", metadata=((MARK, "forged"),))[0] == [b"a"]
    assert cart.header(MARK) == ["true"]


def test_a_service_that_restarts_gets_checks_again(serve: Serve, cart: Cart) -> None:
    with authorizing() as authority:
        port = serve(cart, filters=[ext_authz(authority.target, credentials=None)])
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert call(channel, "unary_unary", b"a")[0] == [b"a"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert refusal(channel).code() is grpc.StatusCode.PERMISSION_DENIED
        with authorizing(authority.target):
            begun = time.monotonic()
            while not _is_answered(channel):
                assert time.monotonic() < begun + 8
    assert cart.calls >= 2


@pytest.mark.slow
def test_a_hanging_service_delays_no_call_past_its_deadline(serve: Serve, cart: Cart, authority: Authority) -> None:
    authority.hold.clear()
    port = serve(cart, filters=[ext_authz(authority.target, credentials=None, timeout=None)])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        begun = time.monotonic()
        multi: Any = channel.unary_unary(PATHS["unary_unary"])
        calls = [multi.future(b"a", timeout=0.5) for _ in range(20)]
        codes = Counter(each.exception(PATIENCE).code() for each in calls)
        assert time.monotonic() < begun + 3
    assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED: 20}
    assert cart.calls == 0


@pytest.mark.slow
@pytest.mark.requirement("EA-5", "EA-36")
@pytest.mark.parametrize("ends", ["cancelled", "late"])
def test_a_call_that_ends_before_its_decision_never_reaches_its_handler(
    serve: Serve, cart: Cart, authority: Authority, ends: str
) -> None:
    authority.hold.clear()
    authority.decide = lambda _: deny()
    asks = ext_authz(authority.target, credentials=None, timeout=None, on_failure=FailOpen())
    port = serve(cart, filters=[asks])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        multi: Any = channel.unary_unary(PATHS["unary_unary"])
        for _ in range(4):
            authority.asked.clear()
            authority.given_up.clear()
            made = multi.future(b"a", timeout=0.3 if ends == "late" else 60)
            assert authority.asked.wait(PATIENCE)
            if ends == "cancelled":
                made.cancel()
            assert authority.given_up.wait(PATIENCE)
        authority.decide = Authority().decide
        authority.hold.set()
        assert call(channel, "unary_unary", b"b", metadata=(("x-last", "1"),))[0] == [b"b"]
    assert [("x-last", "1") in each for each in cart.metadata] == [True]


def test_remembered_decisions_outlive_the_service_and_errors_are_never_remembered(serve: Serve, cart: Cart) -> None:
    with authorizing() as authority:
        asks = ext_authz(authority.target, credentials=None, cache=Caching(headers=("x-user",), allow_ttl=60))
        port = serve(cart, filters=[asks])
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for _ in range(5):
                call(channel, "unary_unary", b"a", metadata=(("x-user", "ann"),))
            assert len(authority.checks) == 1
            fail(authority)
            assert refusal(channel, metadata=(("x-user", "bob"),)).code() is grpc.StatusCode.PERMISSION_DENIED
            authority.decide = Authority().decide
            assert call(channel, "unary_unary", b"b", metadata=(("x-user", "bob"),))[0] == [b"b"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert call(channel, "unary_unary", b"a", metadata=(("x-user", "ann"),))[0] == [b"a"]
        assert refusal(channel, metadata=(("x-user", "eve"),)).code() is grpc.StatusCode.PERMISSION_DENIED


def test_equal_calls_at_one_time_make_one_check(serve: Serve, cart: Cart, authority: Authority) -> None:
    authority.hold.clear()
    port = serve(cart, filters=[ext_authz(authority.target, credentials=None, timeout=5, cache=Caching())])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        multi: Any = channel.unary_unary(PATHS["unary_unary"])
        calls = [multi.future(b"a", timeout=PATIENCE) for _ in range(10)]
        assert authority.asked.wait(PATIENCE)
        authority.hold.set()
        assert [each.result(PATIENCE) for each in calls] == [b"a"] * 10
    assert len(authority.checks) == 1


def _is_answered(channel: grpc.Channel) -> bool:
    try:
        call(channel, "unary_unary", b"a")
    except grpc.RpcError:
        return False
    return True


# --- Many calls, and a configuration that changes meanwhile


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.fixture
def xds_serve(stack: str, control: Control) -> Iterator[Callable[..., Served]]:
    with xds_serving(stack) as make:
        yield lambda cart, **options: make(cart, xds=control.bootstrap(), **options)


def test_no_call_gets_through_that_began_after_a_change_forbade_it(
    xds_serve: Any, control: Control, cart: Cart, authority: Authority
) -> None:
    server = xds_serve(cart)
    with authorizing() as strict:
        strict.decide = lambda _: deny()
        open_ = listener(server.port, manager(xds_ext_authz(authority.target)))
        closed = listener(server.port, manager(xds_ext_authz(strict.target)))
        control.publish(open_)
        assert server.is_serving()
        stopping = threading.Event()
        failures: list[str] = []
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:

            def hammer() -> None:
                multi: Any = channel.unary_unary(PATHS["unary_unary"])
                while not stopping.is_set():
                    try:
                        multi(b"x", timeout=PATIENCE)
                    except grpc.RpcError as error:
                        if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
                            failures.append(f"{error.code()}: {error.details()}")

            threads = [threading.Thread(target=hammer) for _ in range(4)]
            for each in threads:
                each.start()
            for _ in range(8):
                control.publish(closed)
                control.wait_for_ack(listener_pb2.Listener)
                assert refusal(channel).code() is grpc.StatusCode.PERMISSION_DENIED
                control.publish(open_)
                control.wait_for_ack(listener_pb2.Listener)
                assert call(channel, "unary_unary", b"a")[0] == [b"a"]
            stopping.set()
            for each in threads:
                each.join(PATIENCE)
    assert failures == []


def _channels() -> int:
    """Count the channels of this process."""
    return len(json.loads(cygrpc.channelz_get_top_channels(0)).get("channel", ()))


@pytest.mark.requirement("HF-24")
def test_updates_leave_no_channels_behind(xds_serve: Any, control: Control, cart: Cart, authority: Authority) -> None:
    server = xds_serve(cart)
    with authorizing() as other, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        counts = []
        for number in range(20):
            target = (authority, other)[number % 2].target
            control.publish(listener(server.port, manager(xds_ext_authz(target, failure_mode_allow=number % 3 == 0))))
            assert server.is_serving()
            control.wait_for_ack(listener_pb2.Listener)
            assert call(channel, "unary_unary", b"a")[0] == [b"a"]
            counts.append(_channels())
    assert counts[-1] <= counts[1]
    assert len(authority.checks) == len(other.checks) == 10


STREAMS = {"threads": 50, "loop": 1000}
"""Each stream occupies a thread of a server with threads."""


@pytest.mark.slow
def test_many_streams_outlast_changes_and_nothing_is_left_of_them(
    xds_serve: Any, control: Control, authority: Authority, stack: str
) -> None:
    cart, count = Cart(), STREAMS[stack]
    server = xds_serve(cart)
    with_filter = listener(server.port, manager(xds_ext_authz(authority.target), rds="r"))
    control.publish(with_filter, routes("r", served()))
    assert server.is_serving()
    ended = asyncio.run(_stream_through(server.port, count, lambda: _change(control, with_filter, server.port)))
    assert ended == count
    assert len(authority.checks) == count


def _change(control: Control, with_filter: Any, port: int) -> None:
    """Change routes, then the Listener; in the end nobody may call any more."""
    control.publish(with_filter, routes("r", served(prefix="/shop.Cart/stream")))
    control.wait_for_ack(route_pb2.RouteConfiguration)
    control.publish(listener(port, manager(inline=routes("inline", served(prefix="/nothing")))))
    control.wait_for_ack(listener_pb2.Listener)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert refusal(channel).details() == "no route matches this call"


async def _stream_through(port: int, count: int, change: Callable[[], None]) -> int:
    """Open streams, use them, change the configuration, use them again, and end them."""
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", (("grpc.use_local_subchannel_pool", 1),)) for _ in range(10)
    ]
    try:
        calls: list[Any] = [
            channels[number % 10].stream_stream(PATHS["stream_stream"])(timeout=60) for number in range(count)
        ]
        await _exchange(calls, b"before")
        await asyncio.to_thread(change)
        await _exchange(calls, b"after")
        for each in calls:
            await each.done_writing()
        return sum([await each.code() is grpc.StatusCode.OK for each in calls])
    finally:
        for channel in channels:
            await channel.close()


async def _exchange(calls: list[Any], message: bytes) -> None:
    for each in calls:
        await each.write(message)
    for each in calls:
        assert await each.read() == message


# --- Clients that send what no client should


@pytest.fixture(params=["filters in code", "xds"])
def any_port(request: pytest.FixtureRequest, xds_serve: Any, serve: Serve, control: Control, cart: Cart) -> int:
    if request.param == "filters in code":
        return serve(cart)
    server: Served = xds_serve(cart)
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    return server.port


ODD = [b"/shop.Cart/\xff", b"/\xff\xfe/a", b"shop.Cart/unary_unary", b"//shop.Cart/unary_unary"]


@pytest.mark.parametrize("path", ODD)
def test_an_invalid_path_reaches_no_handler_and_the_server_continues(any_port: int, cart: Cart, path: bytes) -> None:
    async def send() -> None:
        async with raw_client(TcpAddress(host="127.0.0.1", port=any_port)) as client:
            stream = await client.call(call_headers(path), frame(b"x"))
            # A server that ends says so in the middle of things.
            with suppress(ProtocolError):
                assert (await client.outcome(stream)).grpc != 0

    asyncio.run(send())
    with grpc.insecure_channel(f"127.0.0.1:{any_port}", (("grpc.initial_reconnect_backoff_ms", 100),)) as channel:
        begun = time.monotonic()
        while not _is_answered(channel):
            assert time.monotonic() < begun + PATIENCE
    assert cart.calls == 1


@pytest.mark.parametrize("path", [b"/shop.Cart", b"shop.Cart/unary_unary", b"//shop.Cart/unary_unary", b"/a/b/c", b"*"])
def test_a_path_that_is_no_method_ends_before_filters(
    serve: Serve, cart: Cart, authority: Authority, path: bytes
) -> None:
    port = serve(cart, filters=[ext_authz(authority.target, credentials=None)])

    async def send(path: bytes) -> int | None:
        async with raw_client(TcpAddress(host="127.0.0.1", port=port)) as client:
            return (await client.outcome(await client.call(call_headers(path), frame(b"x")))).grpc

    assert asyncio.run(send(path)) == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert (authority.checks, cart.calls) == ([], 0)
    authority.decide = lambda _: deny()
    assert asyncio.run(send(b"/no.Service/Method")) == grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert len(authority.checks) == 1
