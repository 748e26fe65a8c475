"""Channels for targets of xDS, of both kinds."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.type.v3 import percent_pb2
from tests.support import certificates
from tests.support.eventually import eventually
from tests.support.grpc.channel_kinds import Ways, no_task_is_left
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import KINDS, PATHS, PATIENCE, Authority, Cart, deny
from tests.support.grpc.tls_channels import client_credentials, server_credentials
from tests.support.grpc.xds_resources import api_listener, cluster, endpoints, ext_authz, manager
from tests.support.grpc.xds_routes import forwarded, routes

import authplane.grpc
import authplane.grpc.aio


@contextmanager
def backend(cart: Cart, address: str = "127.0.0.1:0") -> Iterator[int]:
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [cart.threads()])
        port = server.add_insecure_port(address)
        server.start()
        yield port
        assert server.stop(0).wait(PATIENCE)


@pytest.fixture
def carts() -> tuple[Cart, Cart]:
    return Cart(), Cart()


@pytest.fixture
def ports(carts: tuple[Cart, Cart]) -> Iterator[tuple[int, int]]:
    with backend(carts[0]) as first, backend(carts[1]) as second:
        yield first, second


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.fixture
async def connect(stack: str, control: Control) -> AsyncIterator[Any]:
    made: list[Any] = []

    def open_channel(target: str = "xds:///shop", **options: Any) -> Ways:
        make: Any = authplane.grpc.channel if stack == "threads" else authplane.grpc.aio.channel
        options.setdefault("xds", control.bootstrap())
        made.append(make(target, **options))
        return Ways(stack, made[-1])

    yield open_channel
    for each in made:
        if stack == "threads":
            await asyncio.to_thread(each.close)
        else:
            await each.close()
    await no_task_is_left()


def whole(*ports: int, **more: Any) -> tuple[Any, ...]:
    """Return all resources of a client whose calls go to these ports."""
    inline = routes("inline", forwarded("c"))
    return api_listener("shop", manager(inline=inline)), cluster("c", **more), endpoints("c", ports)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_resolves_over_four_types_of_resources(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int], kind: str
) -> None:
    listener = api_listener("shop", manager(rds="r"))
    control.publish(listener, routes("r", forwarded("c")), cluster("c"), endpoints("c", ports))
    ways = connect()
    for _ in range(6):
        responses, _ = await ways.call(kind, b"a")
        assert responses[0] == b"a"
    # grpcio's own round robin.
    assert all(cart.calls for cart in carts)


async def test_a_call_waits_for_the_configuration(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int]
) -> None:
    ways = connect()
    assert (await ways.refusal(timeout=0.2)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    waiting = asyncio.create_task(ways.call("unary_unary", b"a"))
    await asyncio.sleep(0)
    control.publish(*whole(*ports))
    assert (await waiting)[0] == [b"a"]


async def test_the_first_call_may_have_credentials_of_its_own(connect: Any, control: Control, cart: Cart) -> None:
    pair = certificates.server("shop.example")
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, [cart.threads()])
        port = server.add_secure_port("127.0.0.1:0", server_credentials(pair, mutual=False))
        server.start()
        control.publish(*whole(port))
        options = (("grpc.ssl_target_name_override", "shop.example"),)
        ways = connect(credentials=client_credentials(None), options=options)
        token = grpc.access_token_call_credentials("a-token")
        assert (await ways.call("unary_unary", b"a", credentials=token))[0] == [b"a"]
        assert server.stop(0).wait(PATIENCE)


@pytest.mark.requirement("XC-9")
async def test_a_target_that_does_not_resolve_is_unavailable_and_the_patient_wait(
    connect: Any, control: Control, ports: tuple[int, int]
) -> None:
    control.publish(api_listener("shop", manager(inline=routes("inline", forwarded("c", "other.example")))))
    ways = connect()
    error = await ways.refusal()
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "no virtual host of inline matches authority 'shop'",
    )
    patient = asyncio.create_task(ways.call("unary_unary", b"a", wait_for_ready=True))
    await asyncio.sleep(0.05)
    control.publish(*whole(*ports))
    assert (await patient)[0] == [b"a"]


async def test_an_update_moves_new_calls_and_leaves_those_under_way(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int]
) -> None:
    control.publish(*whole(ports[0]))
    ways = connect()
    carts[0].hold.clear()
    slow = asyncio.create_task(ways.call("unary_unary", b"slow"))
    assert await asyncio.to_thread(carts[0].entered.wait, PATIENCE)
    control.publish(*whole(ports[1]))
    await asyncio.to_thread(control.wait_for_ack, endpoint_pb2.ClusterLoadAssignment)

    async def moved() -> bool:
        before = carts[1].calls
        carts[0].hold.set()
        await ways.call("unary_unary", b"a")
        return carts[1].calls > before

    await eventually(moved)
    assert (await slow)[0] == [b"slow"]
    before = carts[0].calls
    for _ in range(5):
        await ways.call("unary_unary", b"a")
    assert carts[0].calls == before


@pytest.mark.requirement("EA-36")
@pytest.mark.parametrize("kind", KINDS)
async def test_filters_of_the_listener_judge_calls_before_they_go_out(
    connect: Any, control: Control, cart: Cart, authority: Authority, kind: str
) -> None:
    made = manager(ext_authz(authority.target), inline=routes("inline", forwarded("c")))
    with backend(cart) as port:
        control.publish(api_listener("shop", made), cluster("c"), endpoints("c", (port,)))
        ways = connect()
        assert (await ways.call(kind, b"a"))[0][0] == b"a"
        authority.decide = lambda _: deny()
        assert (await ways.refusal(kind)).code() is grpc.StatusCode.PERMISSION_DENIED
    assert cart.calls == 1


@pytest.mark.slow
async def test_an_endpoint_that_was_away_is_tried_every_two_seconds(control: Control) -> None:
    attempts: asyncio.Queue[float] = asyncio.Queue()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.put_nowait(asyncio.get_running_loop().time())
        writer.close()

    away = await asyncio.start_server(refuse, "127.0.0.1", 0)
    control.publish(*whole(away.sockets[0].getsockname()[1]))
    channel: Any = authplane.grpc.aio.channel("xds:///shop", xds=control.bootstrap())
    async with away, channel:
        call = asyncio.ensure_future(channel.unary_unary(PATHS["unary_unary"])(b"a", wait_for_ready=True))
        async with asyncio.timeout(60):
            times = [await attempts.get() for _ in range(6)]
        call.cancel()
    # Without a limit grpcio's fifth pause is 5.2 s at least; a busy machine adds to ours, which is 2.4 s at most.
    assert times[-1] - times[-2] < 4.5


async def test_calls_go_to_the_next_priority_while_the_first_is_away(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int]
) -> None:
    with backend(Cart()) as gone:
        pass
    inline = routes("inline", forwarded("c"))
    control.publish(api_listener("shop", manager(inline=inline)), cluster("c"), endpoints("c", (gone,), (ports[1],)))
    ways = connect()

    async def answered() -> bool:
        try:
            return bool((await ways.call("unary_unary", b"a"))[0] == [b"a"])
        except grpc.RpcError:
            return False

    await eventually(answered)
    assert carts[1].calls >= 1


async def test_a_cluster_takes_only_so_many_calls_at_once(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int]
) -> None:
    breaker = {"thresholds": [{"max_requests": {"value": 1}}]}
    control.publish(*whole(ports[0], circuit_breakers=breaker))
    ways = connect()
    carts[0].hold.clear()
    slow = asyncio.create_task(ways.call("unary_unary", b"slow"))
    assert await asyncio.to_thread(carts[0].entered.wait, PATIENCE)
    error = await ways.refusal()
    carts[0].hold.set()
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "the cluster has too many concurrent calls (max_requests)",
    )
    assert (await slow)[0] == [b"slow"]


async def test_calls_are_dropped_where_the_endpoints_say_so(
    connect: Any, control: Control, ports: tuple[int, int]
) -> None:
    inline = routes("inline", forwarded("c"))
    assigned = endpoints("c", ports)
    assigned.policy.drop_overloads.add(
        category="maintenance", drop_percentage=percent_pb2.FractionalPercent(numerator=100)
    )
    control.publish(api_listener("shop", manager(inline=inline)), cluster("c"), assigned)
    error = await connect().refusal()
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "dropped by drop_overloads: maintenance")


async def test_routes_choose_clusters_and_limit_the_time(
    connect: Any, control: Control, carts: tuple[Cart, Cart], ports: tuple[int, int]
) -> None:
    host = forwarded("first")
    stream = host.routes.add()
    stream.CopyFrom(host.routes[0])
    stream.route.cluster = "second"
    stream.route.max_stream_duration.max_stream_duration.nanos = 200_000_000
    host.routes[0].match.CopyFrom(route_components_pb2.RouteMatch(path=PATHS["unary_unary"]))
    control.publish(
        api_listener("shop", manager(inline=routes("inline", host))),
        cluster("first"),
        cluster("second"),
        endpoints("first", (ports[0],)),
        endpoints("second", (ports[1],)),
    )
    ways = connect()
    await ways.call("unary_unary", b"a")
    await ways.call("stream_unary", b"a")
    assert (carts[0].calls, carts[1].calls) == (1, 1)
    carts[1].hold.clear()
    error = await ways.refusal("stream_unary")
    carts[1].hold.set()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_status_of_calls_has_the_beginning_of_many_problems_and_the_log_has_all(
    connect: Any, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [ext_authz("") for _ in range(200)]
    for number, each in enumerate(bad):
        each.name = f"filter-{number}"
    control.publish(api_listener("shop", manager(*bad, inline=routes("inline", forwarded("c")))))
    ways = connect()
    error = await ways.refusal()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    details = error.details()
    assert "http_filters[0]" in details
    assert re.search(r"… \(the log authplane\.xds contains all \d{5} characters\)$", details)
    assert len(details) < 600

    async def logged() -> bool:
        return any("rejected" in line and "http_filters[199]" in line for line in caplog.messages)

    await eventually(logged)


async def test_a_channel_shows_that_it_is_ready(connect: Any, control: Control, ports: tuple[int, int]) -> None:
    ways = connect()
    control.publish(*whole(*ports))
    if ways.stack == "threads":
        await asyncio.to_thread(grpc.channel_ready_future(ways.channel).result, PATIENCE)
    else:
        async with asyncio.timeout(PATIENCE):
            await ways.channel.channel_ready()
    assert (await ways.call("unary_unary", b"a"))[0] == [b"a"]


@pytest.mark.parametrize(
    ("target", "words"), [("xds:///", "has no name"), ("xds://unknown/shop", "has no authority for")]
)
def test_a_target_that_cannot_be_is_refused_at_once(control: Control, target: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        authplane.grpc.channel(target, xds=control.bootstrap())


def test_a_bootstrap_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(authplane.grpc.BootstrapError, match="Cannot read the xDS bootstrap"):
        authplane.grpc.channel("xds:///shop", xds=tmp_path / "missing.json")
