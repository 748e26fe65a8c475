"""Servers that xDS configures."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import KINDS, PATHS, PATIENCE, Authority, Cart, call, deny, refusal
from tests.support.grpc.xds_resources import ext_authz, listener, manager
from tests.support.grpc.xds_routes import routes, served
from tests.support.grpc.xds_servers import Served, xds_serving

from authplane.grpc import NotServing, Serving, ServingState

NOBODY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
"""How calls end where no server is, or one that is about to stop."""


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.fixture
def xds_serve(stack: str, control: Control) -> Iterator[Callable[..., Served]]:
    with xds_serving(stack) as make:

        def serve(cart: Cart, *arguments: Any, **options: Any) -> Served:
            options.setdefault("xds", control.bootstrap())
            return make(cart, *arguments, **options)

        yield serve


@pytest.fixture
def connect() -> Iterator[Callable[[Served], grpc.Channel]]:
    made: list[grpc.Channel] = []

    def open_channel(server: Served) -> grpc.Channel:
        # A connection of its own each time, and soon another one if it breaks.
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100))
        made.append(grpc.insecure_channel(f"127.0.0.1:{server.port}", options))
        return made[-1]

    yield open_channel
    for each in made:
        each.close()


@pytest.mark.requirement("SL-1", "SL-5", "SL-6")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_serves_when_its_listener_comes(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, kind: str
) -> None:
    told: list[ServingState] = []
    server = xds_serve(cart, on_serving_state=told.append)
    address = f"127.0.0.1:{server.port}"
    assert server.states == (NotServing(address, "waiting for the Listener resource"),)
    assert refusal(connect(server), timeout=1).code() in NOBODY
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    assert call(connect(server), kind, b"a")[0][:1] == [b"a"]
    assert told == [Serving(address)]
    server.stop(0)
    assert told[1:] == [NotServing(address, "the server was stopped")]


@pytest.mark.requirement("EA-36", "HF-24")
def test_ext_authz_from_xds_decides_and_a_changed_listener_counts_at_once(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, authority: Authority
) -> None:
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(ext_authz(authority.target))))
    assert server.is_serving()
    channel = connect(server)
    assert call(channel, "unary_unary", b"a")[0] == [b"a"]
    authority.decide = lambda _: deny()
    assert refusal(channel).code() is grpc.StatusCode.PERMISSION_DENIED
    control.publish(listener(server.port, manager()))
    control.wait_for_ack(listener_pb2.Listener)
    assert call(channel, "unary_unary", b"b", wait_for_ready=True)[0] == [b"b"]
    assert len(authority.checks) == 2


@pytest.mark.requirement("SL-6")
@pytest.mark.parametrize("drains", [False, True])
def test_calls_under_way_outlast_a_change_and_new_ones_obey_it(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, drains: bool
) -> None:
    server = xds_serve(cart, drain_on_change=drains)
    with_routes = listener(server.port, manager(rds="r"))
    control.publish(with_routes, routes("r", served()))
    assert server.is_serving()
    channel = connect(server)
    cart.hold.clear()
    multi: Any = channel.unary_unary(PATHS["unary_unary"])
    under_way = multi.future(b"slow", timeout=20)
    assert cart.entered.wait(PATIENCE)
    control.publish(with_routes, routes("r", served(prefix="/shop.Cart/unary")))
    control.wait_for_ack(route_pb2.RouteConfiguration)
    # Routes alone never end a connection.
    assert refusal(channel, "stream_unary").details() == "no route matches this call"
    control.publish(listener(server.port, manager(inline=routes("inline", served(prefix="/shop.Cart/stream")))))
    control.wait_for_ack(listener_pb2.Listener)
    cart.hold.set()
    late = connect(server)
    assert call(late, "stream_unary", b"new", wait_for_ready=True)[0] == [b"new"]
    assert refusal(late).details() == "no route matches this call"
    assert under_way.result(PATIENCE) == b"slow"


@pytest.mark.requirement("SL-6")
def test_connections_that_have_an_age_end_without_a_call_that_notices(
    xds_serve: Any, connect: Any, control: Control, cart: Cart
) -> None:
    server = xds_serve(cart, options=[("grpc.max_connection_age_ms", 100)])
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    channel = connect(server)
    peers: set[str] = set()
    begun = time.monotonic()
    cart.note = lambda context: peers.add(context.peer())
    while len(peers) < 3:
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        assert time.monotonic() < begun + PATIENCE


@pytest.mark.requirement("SL-6")
def test_a_server_whose_listener_goes_away_takes_no_connections(
    xds_serve: Any, connect: Any, control: Control, cart: Cart
) -> None:
    changes: list[ServingState] = []
    changed = threading.Event()

    def told(state: ServingState) -> None:
        changes.append(state)
        changed.set()

    server = xds_serve(cart, on_serving_state=told)
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    changed.clear()
    control.publish()
    assert changed.wait(PATIENCE)
    assert isinstance(changes[-1], NotServing)
    assert "deleted" in changes[-1].why
    assert "use the values of spec.grpc.address" in changes[-1].why
    assert refusal(connect(server), timeout=1).code() in NOBODY
    changed.clear()
    control.publish(listener(server.port, manager()))
    assert changed.wait(PATIENCE)
    assert call(connect(server), "unary_unary", b"a")[0] == [b"a"]


@pytest.mark.requirement("SL-2")
def test_a_listener_for_another_address_does_not_serve(xds_serve: Any, control: Control, cart: Cart) -> None:
    told = threading.Event()
    server = xds_serve(cart, on_serving_state=lambda _: told.set())
    resource = listener(server.port, manager())
    resource.address.socket_address.port_value = 1
    control.publish(resource)
    assert told.wait(PATIENCE)
    (state,) = server.states
    assert isinstance(state, NotServing)
    assert f"not for 127.0.0.1 port {server.port}" in state.why


@pytest.mark.requirement("SL-5")
def test_calls_fail_while_there_are_no_routes(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, authority: Authority
) -> None:
    server = xds_serve(cart)
    bad = routes("r", served())
    bad.virtual_hosts[0].domains[:] = ["a*b"]
    control.publish(listener(server.port, manager(ext_authz(authority.target), rds="r")), bad)
    assert server.is_serving()
    error = refusal(connect(server))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details().startswith("no routes: ")
    assert len(authority.checks) == 1
    assert cart.calls == 0


@pytest.mark.slow
@pytest.mark.requirement("SL-7")
def test_a_server_goes_on_without_its_control_plane(xds_serve: Any, connect: Any, cart: Cart, control: Control) -> None:
    with controlling() as own:
        server = xds_serve(cart, xds=own.bootstrap())
        own.publish(listener(server.port, manager()))
        assert server.is_serving()
        channel = connect(server)
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
    assert call(channel, "unary_unary", b"b")[0] == [b"b"]
    assert call(connect(server), "unary_unary", b"c")[0] == [b"c"]
    assert server.states == (Serving(f"127.0.0.1:{server.port}"),)
    # It returns, with other resources under the same versions.
    with controlling(Control(), own.target) as returned:
        returned.publish(listener(server.port, manager(rds="r")), routes("r", served(prefix="/nothing")))
        returned.wait_for_ack(route_pb2.RouteConfiguration)
        assert refusal(connect(server)).details() == "no route matches this call"


def test_virtual_hosts_are_chosen_by_the_authority_where_it_is_known(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, stack: str
) -> None:
    hosts = routes("inline", served("shop.example", "/shop.Cart/unary_unary"), served("*", "/nothing"))
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(inline=hosts)))
    assert server.is_serving()
    options = (("grpc.default_authority", "shop.example"),)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        if stack == "threads":
            assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        else:
            assert refusal(channel).details() == "no route matches this call"
    assert refusal(connect(server)).details() == "no route matches this call"


def test_a_default_authority_replaces_an_unknown_authority(
    xds_serve: Any, connect: Any, control: Control, cart: Cart, stack: str
) -> None:
    hosts = routes("inline", served("shop.example"), served("*", "/nothing"))
    server = xds_serve(cart, default_authority="shop.example")
    control.publish(listener(server.port, manager(inline=hosts)))
    assert server.is_serving()
    if stack == "loop":
        assert call(connect(server), "unary_unary", b"a")[0] == [b"a"]
    else:
        assert refusal(connect(server)).details() == "no route matches this call"


def test_a_bad_listener_is_refused_with_every_problem_and_the_good_one_stays(
    xds_serve: Any, connect: Any, control: Control, cart: Cart
) -> None:
    bootstrap = control.bootstrap()
    bootstrap["xds_servers"][0]["server_features"].remove("fail_on_data_errors")
    server = xds_serve(cart, xds=bootstrap)
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    bad = manager(ext_authz(""))
    bad.xff_num_trusted_hops = 1
    control.publish(listener(server.port, bad))
    nack = control.wait_for_nack()
    assert "target_uri" in nack
    assert "xff_num_trusted_hops" in nack
    assert call(connect(server), "unary_unary", b"a")[0] == [b"a"]
