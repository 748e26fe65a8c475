"""The composite filter on servers of both kinds."""

import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.service.auth.v3 import external_auth_pb2
from google.protobuf import struct_pb2
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from tests.support import certificates
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import (
    KINDS,
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
from tests.support.grpc.tls_channels import secured, server_credentials, spiffe_client
from tests.support.grpc.xds_resources import ext_authz, http_filter, listener, manager, packed
from tests.support.grpc.xds_routes import routes, served
from tests.support.grpc.xds_servers import Served, xds_serving

from authplane.dataplane.runtime.connections.side_channels import channel_keys
from authplane.grpc import filter_from
from authplane.grpc.matching import (
    by_header,
    by_prefix,
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
def xds_serve(stack: str, control: Control) -> Iterator[Callable[..., Served]]:
    with xds_serving(stack) as make:
        yield lambda cart, **options: make(cart, xds=control.bootstrap(), **options)


def asking(authority: Authority) -> ext_authz_pb2.ExtAuthz:
    """Return ext_authz as a filter that a tree may choose."""
    config = ext_authz_pb2.ExtAuthz()
    assert ext_authz(authority.target).typed_config.Unpack(config)
    config.grpc_service.timeout.seconds = 20
    return config


def filter_of(config: Message) -> Any:
    return http_filter("choice", config)


def on(server: Served) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{server.port}", (("grpc.use_local_subchannel_pool", 1),))


@pytest.mark.requirement("CF-11", "CF-6")
@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_chooses_between_a_check_a_pass_and_a_refusal(
    xds_serve: Any, control: Control, cart: Cart, authority: Authority, kind: str
) -> None:
    tree = by_header(
        "x-tier",
        {"free": execute(asking(authority)), "gold": skip()},
        otherwise=first_match(when(cel("request.headers['x-admin'] == 'yes'"), then=execute(asking(authority)))),
    )
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(filter_of(composite(tree)))))
    assert server.is_serving()
    authority.decide = lambda _: allow(x_checked="yes")
    with on(server) as channel:
        assert call(channel, kind, b"a", metadata=(("x-tier", "gold"),))[0][:1] == [b"a"]
        assert cart.header("x-checked") == []
        assert call(channel, kind, b"a", metadata=(("x-tier", "free"),))[0][:1] == [b"a"]
        assert cart.header("x-checked") == ["yes"]
        assert call(channel, kind, b"a", metadata=(("x-tier", "other"), ("x-admin", "yes")))[0][:1] == [b"a"]
        ended = refusal(channel, kind, metadata=(("x-tier", "other"),))
        assert (ended.code(), ended.details()) == (UNAVAILABLE, "no match found in composite filter")
        authority.decide = lambda _: deny(message="no")
        assert refusal(channel, kind, metadata=(("x-tier", "free"),)).code() is grpc.StatusCode.PERMISSION_DENIED
    assert len(authority.checks) == 3
    assert cart.calls == 3


@pytest.mark.requirement("CF-10", "CF-5")
def test_a_chain_and_trees_within_trees_are_run_in_order(
    xds_serve: Any, control: Control, cart: Cart, authority: Authority
) -> None:
    inner: Message = execute(asking(authority), asking(authority))
    for _ in range(6):
        inner = execute(composite(by_prefix(":path", {"/shop.": inner})))
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(filter_of(composite(first_match(when(cel("true"), then=inner)))))))
    assert server.is_serving()
    numbers = iter(["first", "second"])

    def decide(_: external_auth_pb2.CheckRequest) -> external_auth_pb2.CheckResponse:
        number = next(numbers)
        response = allow(x_last=number)
        added = response.ok_response.response_headers_to_add.add()
        added.header.key, added.header.value = "x-passed", number
        return response

    authority.decide = decide
    with on(server) as channel:
        _, made = call(channel, "unary_unary", b"a")
    assert cart.header("x-last") == ["second"]
    # A response passes the filters from the last to the first.
    assert [value for key, value in made.initial_metadata() if key == "x-passed"] == ["second", "first"]


@pytest.mark.requirement("CF-12")
def test_a_filter_for_clients_only_refuses_the_calls_that_lead_to_it(
    xds_serve: Any, control: Control, cart: Cart
) -> None:
    tree = first_match(when(header("x").is_("a"), then=execute(fault_pb2.HTTPFault())), otherwise=skip())
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(filter_of(composite(tree)))))
    assert server.is_serving()
    with on(server) as channel:
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        ended = refusal(channel, metadata=(("x", "a"),))
    want = "envoy.extensions.filters.http.fault.v3.HTTPFault filter not supported on servers"
    assert (ended.code(), ended.details()) == (UNAVAILABLE, want)


@pytest.mark.requirement("CF-6", "CF-8")
def test_a_bad_tree_is_refused_as_a_whole(xds_serve: Any, control: Control, cart: Cart) -> None:
    server = xds_serve(cart)
    control.publish(
        listener(server.port, manager(filter_of(composite(by_header("x", {"a": execute(router_pb2.Router())})))))
    )
    said = control.wait_for_nack()
    assert "exact_match_map.map.a.action.typed_config" in said
    assert "ends a chain, so a composite filter cannot execute it" in said


def told(**members: object) -> base_pb2.Metadata:
    return base_pb2.Metadata(filter_metadata={"shop": ParseDict(members, struct_pb2.Struct())})


@pytest.mark.requirement("CF-9", "CEL-10", "MD-2")
def test_routes_override_the_tree_and_tell_it_what_they_are(xds_serve: Any, control: Control, cart: Cart) -> None:
    tier = "xds.route_metadata.filter_metadata.shop.tier"
    whole = composite(
        first_match(when(cel(f"{tier} == 'gold' && size(xds.cluster_metadata.filter_metadata) == 0"), then=skip()))
    )
    override = composite_override(first_match(when(cel(f"{tier} == 3"), then=skip())))
    hosts = served(prefix=PATHS["unary_unary"], metadata=told(tier="gold"))
    hosts.routes.extend(served(prefix=PATHS["unary_stream"], metadata=told(tier="silver")).routes)
    hosts.routes.extend(
        served(
            prefix=PATHS["stream_unary"], metadata=told(tier=3), typed_per_filter_config={"choice": packed(override)}
        ).routes
    )
    hosts.routes.extend(served(prefix="/").routes)
    server = xds_serve(cart)
    control.publish(listener(server.port, manager(filter_of(whole), rds="r")), routes("r", hosts))
    assert server.is_serving()
    with on(server) as channel:
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        assert refusal(channel, "unary_stream").code() is UNAVAILABLE
        assert call(channel, "stream_unary", b"a")[0] == [b"a"]
        assert refusal(channel, "stream_stream").code() is UNAVAILABLE
        control.publish(
            listener(server.port, manager(filter_of(whole), rds="r")), routes("r", served(metadata=told(tier="gold")))
        )
        control.wait_for_ack(route_pb2.RouteConfiguration)
        assert call(channel, "stream_stream", b"a")[0] == [b"a"]


class Noting(Authority):
    """An authorization service that knows over which connections it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: list[str] = []

    def check(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.peers.append(context.peer())
        return super().check(body, context)


@pytest.mark.requirement("CF-13")
def test_calls_under_way_end_as_they_began_and_the_side_channel_outlives_an_update(
    xds_serve: Any, control: Control, cart: Cart
) -> None:
    with authorizing(authority=Noting()) as authority:
        assert isinstance(authority, Noting)
        server = xds_serve(cart)
        before = by_header("x", {"a": execute(asking(authority))}, otherwise=skip())
        control.publish(listener(server.port, manager(filter_of(composite(before)))))
        assert server.is_serving()
        with on(server) as channel:
            assert call(channel, "unary_unary", b"a", metadata=(("x", "a"),))[0] == [b"a"]
            authority.hold.clear()
            authority.asked.clear()
            multi: Any = channel.unary_unary(PATHS["unary_unary"])
            under_way = multi.future(b"slow", timeout=20, metadata=(("x", "a"),))
            assert authority.asked.wait(PATIENCE)
            after = by_header("x", {"0": skip(), "a": execute(asking(authority))})
            control.publish(listener(server.port, manager(filter_of(composite(after)))))
            control.wait_for_ack(listener_pb2.Listener)
            with on(server) as late:
                assert refusal(late, wait_for_ready=True).code() is UNAVAILABLE
                authority.hold.set()
                assert under_way.result(PATIENCE) == b"slow"
                assert call(late, "unary_unary", b"b", metadata=(("x", "a"),))[0] == [b"b"]
    assert len(authority.peers) == 3
    assert len(set(authority.peers)) == 1


def test_the_side_channels_of_nested_filters_are_found() -> None:
    authority = Authority()
    authority.target = "authz.example:1"
    inner = composite(by_prefix(":path", {"/": execute(asking(authority))}))
    found = channel_keys(filter_from(composite(first_match(when(cel("true"), then=execute(inner))))))
    assert [each.target for each in found] == ["authz.example:1"]


@pytest.mark.requirement("CEL-9")
@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
def test_expressions_see_the_connection_as_it_is(serve: Serve, cart: Cart, kind: str) -> None:
    pair, client = certificates.server("shop.example"), spiffe_client()
    digest = sha256(x509.load_pem_x509_certificate(client.certificate).public_bytes(Encoding.DER)).hexdigest()
    tree = first_match(
        when(
            cel(
                'source.ip == "127.0.0.1" && source.port > 1023 && source.address.startsWith("127.0.0.1:") '
                '&& connection.tls_version == "TLSv1.3" && connection.requested_server_name == "shop.example" '
                f'&& connection.sha256_peer_certificate_digest == "{digest}"'
            ),
            then=skip(),
        )
    )
    credentials = server_credentials(pair, mutual=True)
    port = serve(cart, credentials=credentials, filters=[filter_from(composite(tree))], certificate=pair.certificate)
    with secured(port, client) as channel:
        assert call(channel, kind, b"a")[0][:1] == [b"a"]
    with secured(port, spiffe_client()) as channel:
        assert refusal(channel, kind).code() is UNAVAILABLE


def test_many_calls_at_once_choose_each_for_itself(serve: Serve, cart: Cart) -> None:
    tree = first_match(when(cel("int(request.headers['n']) % 2 == 0"), then=skip()))
    port = serve(cart, filters=[filter_from(composite(tree))])
    wrong: list[int] = []

    def work(channel: grpc.Channel, start: int) -> None:
        for number in range(start, start + 25):
            try:
                call(channel, "unary_unary", b"a", metadata=(("n", str(number)),))
                passed = True
            except grpc.RpcError:
                passed = False
            if passed != (number % 2 == 0):
                wrong.append(number)

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        workers = [threading.Thread(target=work, args=(channel, start)) for start in range(8)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    assert wrong == []
    assert cart.calls == 100
