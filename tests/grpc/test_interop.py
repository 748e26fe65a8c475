"""Our servers and channels with parties that were not made for them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.service.status.v3 import csds_pb2
from google.protobuf import duration_pb2
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.support.eventually import eventually
from tests.support.grpc.acting_filters import Doing
from tests.support.grpc.control_plane import controlling
from tests.support.grpc.shop_servers import PATHS, PATIENCE, Authority, Cart, Serve, allow, call, deny, refusal
from tests.support.grpc.xds_resources import TEMPLATE, api_listener, cluster, endpoints, ext_authz, listener, manager
from tests.support.grpc.xds_routes import forwarded, routes

import authplane.grpc
import authplane.grpc.aio
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.grpc import FailOpen, Proceed, Serving
from authplane.grpc import ext_authz as asking
from authplane.runtime.servers.listen import TcpAddress
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot


async def test_a_server_and_a_channel_obey_our_own_control_plane(cart: Cart, authority: Authority) -> None:
    control = Ads(lambda _: None)
    async with control.serve(TcpAddress(host="127.0.0.1", port=0)) as bound:
        assert isinstance(bound, TcpAddress)
        xds_server = {
            "server_uri": f"127.0.0.1:{bound.port}",
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["trusted_xds_server"],
        }
        bootstrap = {"xds_servers": [xds_server], "server_listener_resource_name_template": TEMPLATE}
        server = authplane.grpc.aio.server(handlers=[cart.loop()], xds=bootstrap, default_authority="shop")
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            served = listener(port, manager(ext_authz(authority.target)))
            client = api_listener("shop", manager(inline=routes("inline", forwarded("c"))))
            control.publish(
                Snapshot.of(
                    {
                        TypeUrl.LISTENER: {each.name: each.SerializeToString() for each in (served, client)},
                        TypeUrl.CLUSTER: {"c": cluster("c").SerializeToString()},
                        TypeUrl.ENDPOINT: {"c": endpoints("c", (port,)).SerializeToString()},
                    }
                )
            )
            assert await server.wait_until_serving(PATIENCE)
            async with authplane.grpc.aio.channel("xds:///shop", xds=bootstrap) as channel:
                say: Any = channel.unary_unary(PATHS["unary_unary"])
                assert await say(b"a", timeout=PATIENCE) == b"a"
                authority.decide = lambda _: deny()
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await say(b"a", timeout=PATIENCE)
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        finally:
            await server.stop(0)


def test_reflection_works_behind_filters() -> None:
    with ThreadPoolExecutor(4) as pool:
        passing = Doing(lambda call: Proceed(metadata=(*call.metadata, ("x-a", "1"))))
        server = authplane.grpc.server(pool, filters=[passing])
        reflection.enable_server_reflection(("shop.Cart", reflection.SERVICE_NAME), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            names = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert server.stop(0).wait(PATIENCE)
    assert sorted(names) == ["grpc.reflection.v1alpha.ServerReflection", "shop.Cart"]


def test_a_server_for_envoy_gets_checks_in_envoys_form(serve: Serve, cart: Cart, authority: Authority) -> None:
    def decide(check: Any) -> Any:
        # As services read it that were made for Envoy: from the map, and by the path.
        http = check.attributes.request.http
        return allow() if http.headers.get("x-user") == "ann" and http.path.startswith("/shop.Cart/") else deny()

    authority.decide = decide
    port = serve(cart, filters=[asking(authority.target, credentials=None, check_request="envoy")])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert call(channel, "unary_unary", b"a", metadata=(("x-user", "ann"),))[0] == [b"a"]
        assert refusal(channel, metadata=(("x-user", "bob"),)).code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.slow
@pytest.mark.parametrize(
    "trace",
    [
        (("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"), ("tracestate", "a=" + "b" * 7800)),
        (("traceparent", "a" * 7800),),
        (("grpc-trace-bin", b"a" * 5800),),
    ],
    ids=["a state", "a parent", "bytes"],
)
def test_no_trace_is_so_long_that_a_call_passes_without_a_decision(
    serve: Serve, cart: Cart, authority: Authority, trace: tuple[tuple[str, str | bytes], ...]
) -> None:
    authority.decide = lambda _: deny()
    port = serve(cart, filters=[asking(authority.target, credentials=None, on_failure=FailOpen(), timeout=PATIENCE)])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        # Headers beyond 8 KiB are refused the more often the longer they are, by our server and by the service.
        codes = {refusal(channel, metadata=trace).code() for _ in range(30)}
    assert codes <= {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert cart.calls == 0
    assert max(sum(len(name) + len(value) for name, value in each) for each in authority.metadata) < 1024


@pytest.mark.requirement("GS-8")
async def test_calls_go_on_under_the_longest_limits_that_can_be_said(
    stack: str, serve: Serve, cart: Cart, authority: Authority
) -> None:
    port = serve(cart)
    longest = duration_pb2.Duration(seconds=315_576_000_000)
    host = forwarded("c")
    host.routes[0].route.max_stream_duration.max_stream_duration.CopyFrom(longest)
    asked = ext_authz(authority.target)
    config = ext_authz_pb2.ExtAuthz.FromString(asked.typed_config.value)
    config.grpc_service.timeout.CopyFrom(longest)
    asked.typed_config.Pack(config)
    with controlling() as control:
        shop = api_listener("shop", manager(asked, inline=routes("inline", host)))
        control.publish(shop, cluster("c"), endpoints("c", (port,)))
        if stack == "threads":
            with authplane.grpc.channel("xds:///shop", xds=control.bootstrap()) as channel:
                assert (await asyncio.to_thread(call, channel, "unary_unary", b"a", timeout=None))[0] == [b"a"]
        else:
            async with authplane.grpc.aio.channel("xds:///shop", xds=control.bootstrap()) as channel:
                say: Any = channel.unary_unary(PATHS["unary_unary"])
                assert await say(b"a") == b"a"
    assert len(authority.checks) == 1


async def test_what_a_server_was_told_can_be_looked_at(cart: Cart) -> None:
    with controlling() as control:
        server = authplane.grpc.aio.server(handlers=[cart.loop()], xds=control.bootstrap(), default_authority="a")
        server.add_generic_rpc_handlers(
            [authplane.grpc.aio.csds_service(lambda: [server.xds_client] if server.xds_client else [])]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            control.publish(listener(port, manager()))
            assert await server.wait_until_serving(PATIENCE)
            assert server.states == (Serving(f"127.0.0.1:{port}"),)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                fetch: Any = channel.unary_unary(
                    "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
                    csds_pb2.ClientStatusRequest.SerializeToString,
                    csds_pb2.ClientStatusResponse.FromString,
                )

                async def shown() -> bool:
                    (config,) = (await fetch(csds_pb2.ClientStatusRequest(), timeout=PATIENCE)).config
                    return [each.name for each in config.generic_xds_configs] == [TEMPLATE % f"127.0.0.1:{port}"]

                await eventually(shown)
        finally:
            await server.stop(0)


async def test_two_servers_in_one_process_share_nothing(authority: Authority) -> None:
    carts = Cart(), Cart()
    with controlling() as one, controlling() as other:
        servers = [
            authplane.grpc.aio.server(handlers=[cart.loop()], xds=control.bootstrap(), default_authority="a")
            for cart, control in zip(carts, (one, other), strict=True)
        ]
        ports = [each.add_insecure_port("127.0.0.1:0") for each in servers]
        for each in servers:
            await each.start()
        try:
            one.publish(listener(ports[0], manager(ext_authz(authority.target))))
            other.publish(listener(ports[1], manager()))
            for each in servers:
                assert await each.wait_until_serving(PATIENCE)
            authority.decide = lambda _: deny()
            async with (
                grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as first,
                grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}") as second,
            ):
                with pytest.raises(grpc.aio.AioRpcError):
                    await _say(first)
                assert await _say(second) == b"a"
                await servers[0].stop(0)
                assert await _say(second) == b"a"
        finally:
            async with asyncio.TaskGroup() as tasks:
                for each in servers:
                    tasks.create_task(each.stop(0))


async def _say(channel: grpc.aio.Channel) -> Any:
    say: Any = channel.unary_unary(PATHS["unary_unary"])
    return await say(b"a", timeout=PATIENCE)
