"""The composite filter on channels of both kinds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf import struct_pb2
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from tests.support.eventually import eventually
from tests.support.grpc.channel_kinds import Ways, no_task_is_left
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import KINDS, PATIENCE, Authority, Cart, allow, deny
from tests.support.grpc.xds_resources import api_listener, cluster, endpoints, ext_authz, http_filter, manager, packed
from tests.support.grpc.xds_routes import forwarded, routes

import authplane.grpc
import authplane.grpc.aio
from authplane.dataplane.filters.calls import Side
from authplane.grpc.matching import (
    by_header,
    cel,
    composite,
    composite_override,
    execute,
    first_match,
    header,
    skip,
    when,
)

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.fixture
def port(cart: Cart) -> Iterator[int]:
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [cart.threads()])
        made = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield made
        assert server.stop(0).wait(PATIENCE)


@pytest.fixture
async def ways(stack: str, control: Control) -> AsyncIterator[Ways]:
    make: Any = authplane.grpc.channel if stack == "threads" else authplane.grpc.aio.channel
    made = make("xds:///shop", xds=control.bootstrap())
    yield Ways(stack, made)
    if stack == "threads":
        await asyncio.to_thread(made.close)
    else:
        await made.close()
    await no_task_is_left()


@pytest.fixture
def publish(control: Control, port: int) -> Callable[..., None]:
    """Publish all resources of a client whose calls a composite filter judges."""

    def whole(config: Message, route: Any = None, **more: Any) -> None:
        inline = routes("inline", route or forwarded("c"))
        made = manager(http_filter("choice", config), inline=inline)
        control.publish(api_listener("shop", made), cluster("c", **more), endpoints("c", (port,)))

    return whole


def told(**members: object) -> base_pb2.Metadata:
    return base_pb2.Metadata(filter_metadata={"shop": ParseDict(members, struct_pb2.Struct())})


def asking(authority: Authority) -> ext_authz_pb2.ExtAuthz:
    config = ext_authz_pb2.ExtAuthz()
    assert ext_authz(authority.target).typed_config.Unpack(config)
    config.grpc_service.timeout.seconds = 20
    return config


def aborting(code: int) -> fault_pb2.HTTPFault:
    config = fault_pb2.HTTPFault()
    config.abort.grpc_status = code
    config.abort.percentage.numerator = 100
    return config


@pytest.mark.requirement("CF-11", "CF-12")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tree_chooses_between_a_check_a_fault_a_pass_and_a_refusal(
    ways: Ways, publish: Callable[..., None], cart: Cart, authority: Authority, kind: str
) -> None:
    tree = by_header(
        "x",
        {
            "check": execute(asking(authority)),
            "fault": execute(aborting(10)),
            "theirs": execute(rbac_pb2.RBAC()),
            "pass": skip(),
        },
        otherwise=first_match(when(cel("request.headers['deep'].matches('^[a-z]+$')", side=Side.CLIENT), then=skip())),
    )
    publish(composite(tree))
    authority.decide = lambda _: allow(x_checked="yes")

    async def ended(value: str) -> tuple[Any, str]:
        error = await ways.refusal(kind, metadata=(("x", value),))
        return error.code(), error.details()

    assert (await ways.call(kind, b"a", metadata=(("x", "pass"),)))[0][:1] == [b"a"]
    assert (await ways.call(kind, b"a", metadata=(("deep", "abc"),)))[0][:1] == [b"a"]
    assert cart.header("x-checked") == []
    assert (await ways.call(kind, b"a", metadata=(("x", "check"),)))[0][:1] == [b"a"]
    assert cart.header("x-checked") == ["yes"]
    authority.decide = lambda _: deny()
    assert (await ended("check"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert (await ended("fault"))[0] is grpc.StatusCode.ABORTED
    assert await ended("other") == (UNAVAILABLE, "no match found in composite filter")
    assert await ended("theirs") == (
        UNAVAILABLE,
        "envoy.extensions.filters.http.rbac.v3.RBAC filter not supported on clients",
    )
    assert cart.calls == 3


@pytest.mark.requirement("CEL-10", "CF-9")
async def test_expressions_see_what_the_route_and_the_cluster_say(ways: Ways, publish: Callable[..., None]) -> None:
    route, goal = "xds.route_metadata.filter_metadata.shop", "xds.cluster_metadata.filter_metadata.shop"
    text = f"{route}.tier == 'gold' && {goal}.zone == 7"
    tree = first_match(when(cel(text, side=Side.CLIENT), then=skip()))
    gold = forwarded("c", metadata=told(tier="gold"))
    publish(composite(tree), gold, metadata=told(zone=7))
    assert (await ways.call("unary_unary", b"a"))[0] == [b"a"]
    # The cluster alone changes.
    publish(composite(tree), gold, metadata=told(zone=8))

    async def refused() -> bool:
        try:
            await ways.call("unary_unary", b"a")
        except grpc.RpcError as error:
            return bool(error.code() is UNAVAILABLE)
        return False

    await eventually(refused)
    override = composite_override(first_match(when(cel(f"{goal}.zone == 8", side=Side.CLIENT), then=skip())))
    other = forwarded("c", typed_per_filter_config={"choice": packed(override)})
    publish(composite(tree), other, metadata=told(zone=8))

    async def answered() -> bool:
        return not await refused()

    await eventually(answered)


@pytest.mark.requirement("CEL-9")
async def test_an_expression_about_connections_is_refused(
    ways: Ways, publish: Callable[..., None], control: Control
) -> None:
    tree = first_match(when(cel("source.ip == ''"), then=skip()), when(header("x").is_("a"), then=skip()))
    publish(composite(tree))
    assert (await ways.refusal()).code() is UNAVAILABLE
    assert "'source' is not defined. Supported variables: request, xds" in control.wait_for_nack()
