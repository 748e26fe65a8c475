"""Filters from messages: a program uses what it builds in Python as if a control plane had sent it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from tests.support.grpc.channel_kinds import Ways
from tests.support.grpc.shop_servers import KINDS, PATIENCE, Authority, Cart, Serve, allow, call, deny, refusal
from tests.support.grpc.xds_resources import ext_authz

import authplane.grpc
import authplane.grpc.aio
from authplane.dataplane.filters.registry import Registry
from authplane.dataplane.filters.router.wire import ROUTER
from authplane.grpc import Side, filter_from
from authplane.grpc.matching import by_header, cel, composite, execute, first_match, skip, when


def asking(authority: Authority) -> ext_authz_pb2.ExtAuthz:
    config = ext_authz_pb2.ExtAuthz()
    assert ext_authz(authority.target).typed_config.Unpack(config)
    return config


def chosen(authority: Authority) -> extension_matcher_pb2.ExtensionWithMatcher:
    return composite(by_header("x-tier", {"free": execute(asking(authority)), "gold": skip()}))


@pytest.mark.requirement("CF-11")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_without_xds_has_a_composite_filter(serve: Serve, cart: Cart, authority: Authority, kind: str) -> None:
    port = serve(cart, filters=[filter_from(chosen(authority))])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        authority.decide = lambda _: allow(x_user="alice")
        assert call(channel, kind, b"a", metadata=(("x-tier", "free"),))[0][:1] == [b"a"]
        assert cart.header("x-user") == ["alice"]
        authority.decide = lambda _: deny()
        assert refusal(channel, kind, metadata=(("x-tier", "free"),)).code() is grpc.StatusCode.PERMISSION_DENIED
        assert call(channel, kind, b"b", metadata=(("x-tier", "gold"),))[0][:1] == [b"b"]
        assert refusal(channel, kind).code() is grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def port(cart: Cart) -> Iterator[int]:
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [cart.threads()])
        made = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield made
        assert server.stop(0).wait(PATIENCE)


async def test_a_channel_without_xds_has_a_composite_filter(stack: str, port: int, authority: Authority) -> None:
    make: Any = authplane.grpc.channel if stack == "threads" else authplane.grpc.aio.channel
    channel = make(f"127.0.0.1:{port}", filters=[filter_from(chosen(authority), side=Side.CLIENT)])
    ways = Ways(stack, channel)
    authority.decide = lambda _: deny()
    try:
        assert (await ways.call("unary_unary", b"a", metadata=(("x-tier", "gold"),)))[0] == [b"a"]
        for value, code in (("free", grpc.StatusCode.PERMISSION_DENIED), ("x", grpc.StatusCode.UNAVAILABLE)):
            assert (await ways.refusal("unary_unary", metadata=(("x-tier", value),))).code() is code
    finally:
        if stack == "threads":
            channel.close()
        else:
            await channel.close()


def nested() -> extension_matcher_pb2.ExtensionWithMatcher:
    wrong = composite_pb2.ExecuteFilterAction()
    return composite(by_header("x", {"a": wrong, "b": wrappers_pb2.StringValue()}))


CONNECTION = composite(first_match(when(cel("source.port > 1"), then=skip())))
WRONG: dict[str, tuple[Message, Side, str]] = {
    "no filter at all": (
        wrappers_pb2.StringValue(), Side.SERVER, "google.protobuf.StringValue does not configure a filter"
    ),
    "what ends a chain": (router_pb2.Router(), Side.SERVER, "Router does not configure a filter. Use the"
    " configuration of a filter that does not end the chain."),
    "a filter of the other side": (fault_pb2.HTTPFault(), Side.SERVER, "HTTPFault is not supported on servers. Use"
    " another filter."),
    "a check without a service": (ext_authz_pb2.ExtAuthz(), Side.SERVER, "grpc_service: "),
    "two things in a tree": (
        nested(),
        Side.SERVER,
        r"xds_matcher\.matcher_tree\.exact_match_map\.map\.a\.action\.typed_config: The action has no filter. "
        r"Set typed_config or filter_chain. \[FilterMissing\]\n"
        r"xds_matcher\.matcher_tree\.exact_match_map\.map\.b\.action\.typed_config\.",
    ),
    "what only servers know": (CONNECTION, Side.CLIENT, "'source' is not defined"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "side", "problem"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_used_is_an_error_with_every_problem(config: Message, side: Side, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        filter_from(config, side=side)


def test_the_kinds_of_filters_are_those_of_the_registry() -> None:
    filter_from(rbac_pb2.RBAC())
    with pytest.raises(ValueError, match="does not configure a filter"):
        filter_from(rbac_pb2.RBAC(), registry=Registry.of(ROUTER))
