"""Our servers and channels with the xDS of grpcio, grpc-js and grpc-go at the other end, under one control plane."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf.message import Message
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.peers import PEERS, Answer, peer_argv, running
from tests.support.grpc.shop_servers import PATHS, PATIENCE, STACKS, Authority, Cart, call, deny, refusal
from tests.support.grpc.xds_resources import (
    ROUTER,
    TEMPLATE,
    api_listener,
    cluster,
    endpoints,
    ext_authz,
    http_filter,
    listener,
    manager,
    name_of,
)
from tests.support.grpc.xds_routes import forwarded, routes, served
from tests.support.grpc.xds_servers import xds_serving
from tests.support.ports import free_port

import authplane.grpc
import authplane.grpc.aio
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.runtime.servers.listen import TcpAddress
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot

pytestmark = pytest.mark.real

PATH: Final = PATHS["unary_unary"]


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def argv(peer: str, request: pytest.FixtureRequest) -> list[str]:
    return peer_argv(peer, request.config)


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


def to_port(name: str, port: int) -> tuple[Message, ...]:
    """Return what leads a client from a name to a port."""
    inline = routes("inline", forwarded("c"))
    return api_listener(name, manager(inline=inline)), cluster("c"), endpoints("c", (port,))


@pytest.mark.parametrize("stack", STACKS)
def test_a_client_of_theirs_calls_a_server_of_ours(
    argv: list[str], control: Control, cart: Cart, authority: Authority, stack: str
) -> None:
    with xds_serving(stack) as serve:
        server = serve(cart, xds=control.bootstrap(), default_authority="shop")
        control.publish(listener(server.port, manager(ext_authz(authority.target))), *to_port("shop", server.port))
        assert server.is_serving()
        with running(argv, control.bootstrap(), {"target": "xds:///shop"}) as client:
            assert client.call(PATH, [("x-user", "ann")]) == Answer(grpc.StatusCode.OK, "")
            assert cart.header("x-user") == ["ann"]
            authority.decide = lambda _: deny(message="not today")
            refused = Answer(grpc.StatusCode.PERMISSION_DENIED, "denied by the authorization service: not today")
            assert client.call(PATH) == refused
    assert control.nacks == []


async def test_a_client_of_theirs_obeys_our_control_plane(argv: list[str], cart: Cart) -> None:
    control = Ads(lambda _: None)
    async with control.serve(TcpAddress(host="127.0.0.1", port=0)) as bound:
        assert isinstance(bound, TcpAddress)
        xds_server = {"server_uri": f"127.0.0.1:{bound.port}", "channel_creds": [{"type": "insecure"}]}
        bootstrap = {
            "xds_servers": [{**xds_server, "server_features": ["xds_v3"]}],
            "server_listener_resource_name_template": TEMPLATE,
        }
        server = authplane.grpc.aio.server(handlers=[cart.loop()], xds=bootstrap, default_authority="shop")
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            client, found, where = to_port("shop", port)
            control.publish(
                Snapshot.of(
                    {
                        TypeUrl.LISTENER: {
                            name_of(each): each.SerializeToString() for each in (listener(port, manager()), client)
                        },
                        TypeUrl.CLUSTER: {"c": found.SerializeToString()},
                        TypeUrl.ENDPOINT: {"c": where.SerializeToString()},
                    }
                )
            )
            assert await server.wait_until_serving(PATIENCE)
            assert await asyncio.to_thread(_call_once, argv, bootstrap) == Answer(grpc.StatusCode.OK, "")
        finally:
            await server.stop(0)


def _call_once(argv: list[str], bootstrap: dict[str, Any]) -> Answer:
    with running(argv, bootstrap, {"target": "xds:///shop"}) as client:
        return client.call(PATH)


def test_a_channel_of_ours_calls_a_server_of_theirs(peer: str, argv: list[str], control: Control) -> None:
    port = free_port()
    # Their server and our channel get all of it from one place.
    control.publish(listener(port, manager()), *to_port("shop", port))
    orders = {"serve": {"address": f"127.0.0.1:{port}", "paths": [PATH]}}
    with (
        running(argv, control.bootstrap(), orders),
        authplane.grpc.channel("xds:///shop", xds=control.bootstrap()) as channel,
    ):
        responses, _ = call(channel, "unary_unary", b"a", wait_for_ready=True, timeout=20)
        assert responses == [peer.encode()]
    assert control.nacks == []


def test_a_filter_of_the_channel_judges_before_a_server_of_theirs(
    argv: list[str], control: Control, authority: Authority
) -> None:
    port = free_port()
    shop = api_listener("shop", manager(ext_authz(authority.target), inline=routes("inline", forwarded("c"))))
    control.publish(listener(port, manager()), shop, cluster("c"), endpoints("c", (port,)))
    orders = {"serve": {"address": f"127.0.0.1:{port}", "paths": [PATH]}}
    with (
        running(argv, control.bootstrap(), orders),
        authplane.grpc.channel("xds:///shop", xds=control.bootstrap()) as channel,
    ):
        call(channel, "unary_unary", b"a", wait_for_ready=True, timeout=20)
        authority.decide = lambda _: deny(404)
        assert refusal(channel).code() is grpc.StatusCode.UNIMPLEMENTED


# --- What both refuse


def _two_managers(port: int) -> listener_pb2.Listener:
    made = listener(port, manager())
    made.filter_chains[0].filters.add().CopyFrom(made.filter_chains[0].filters[0])
    return made


def _matched_twice(port: int) -> listener_pb2.Listener:
    made = listener(port, manager())
    made.filter_chains.add().CopyFrom(made.filter_chains[0])
    return made


def _after_the_router(port: int) -> listener_pb2.Listener:
    rbac = rbac_pb2.RBAC()
    rbac.rules.SetInParent()
    made = manager()
    made.http_filters.add().CopyFrom(http_filter("rbac", rbac))
    return listener(port, made)


def _routers(port: int) -> listener_pb2.Listener:
    made = manager()
    made.http_filters.add().CopyFrom(ROUTER)
    return listener(port, made)


def _domain(port: int) -> listener_pb2.Listener:
    return listener(port, manager(inline=routes("inline", served("a*b"))))


def _without_filters(port: int) -> listener_pb2.Listener:
    made = manager()
    made.ClearField("http_filters")
    return listener(port, made)


def _hops(port: int) -> listener_pb2.Listener:
    made = manager()
    made.xff_num_trusted_hops = 1
    return listener(port, made)


def _original(port: int) -> listener_pb2.Listener:
    made = listener(port, manager())
    made.use_original_dst.value = True
    return made


WRONG: Final = {
    "two connection managers": _two_managers,
    "chains that match the same": _matched_twice,
    "a filter after the router": _after_the_router,
    "two routers of one name": _routers,
    "a wildcard in the middle": _domain,
    "no filters": _without_filters,
    "a proxy that is trusted": _hops,
    "the original destination": _original,
}
TAKEN: Final = {
    ("grpc-js", "chains that match the same"),
    ("grpc-js", "no filters"),
    ("grpc-js", "a proxy that is trusted"),
    ("grpc-go", "a wildcard in the middle"),
}
"""What a peer takes though its gRFC says otherwise."""


@pytest.mark.parametrize("name", WRONG)
def test_a_listener_that_we_refuse_is_refused_by_their_servers(
    peer: str, argv: list[str], cart: Cart, name: str
) -> None:
    port = free_port()
    with controlling() as ours, controlling() as theirs, xds_serving("threads") as serve:
        server = serve(cart, xds=ours.bootstrap())
        ours.publish(WRONG[name](server.port))
        assert ours.wait_for_nack()
        theirs.publish(WRONG[name](port))
        with running(argv, theirs.bootstrap(), {"serve": {"address": f"127.0.0.1:{port}", "paths": [PATH]}}):
            if (peer, name) in TAKEN:
                theirs.wait_for_ack(listener_pb2.Listener)
            else:
                assert theirs.wait_for_nack()
