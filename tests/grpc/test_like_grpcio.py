"""Where programs rely on what grpcio's own servers and channels do."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tests.grpc.test_interceptors import AioRecording, Recording
from tests.support.grpc.acting_filters import Doing, Sleeping
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import PATHS, PATIENCE, SERVICE, Cart, LoopThread, Serve, call, refusal
from tests.support.grpc.xds_resources import http_filter, listener, manager
from tests.support.grpc.xds_routes import routes, served
from tests.support.grpc.xds_servers import Served, xds_serving

import authplane.grpc
import authplane.grpc.aio
from authplane.dataplane.config.clusters import Drop
from authplane.dataplane.config.security import ClientTls, SystemRoots
from authplane.dataplane.filters.registry import State
from authplane.dataplane.routing.call_filters import FixedRules
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.runtime.channels.aio_channel import AioChannelParts, AioFilteredChannel
from authplane.dataplane.runtime.channels.channel_plan import AlreadyOpen, Backends, Naming, Plan
from authplane.dataplane.runtime.channels.current_plan import AioCurrentPlan, ThreadCurrentPlan
from authplane.dataplane.runtime.channels.xds_targets import BackendKey, Reaching
from authplane.dataplane.runtime.connections.call_kinds import Method
from authplane.dataplane.runtime.connections.channel_pool import AioChannelPool, PooledChannel
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels
from authplane.grpc import Call, FilterType, Mutation, NotServing, Proceed, Side, filter_registry
from authplane.matching.fractions import Fraction

PASS = Doing(lambda call: Proceed(metadata=call.metadata))
EDIT = Doing(lambda call: Proceed(metadata=call.metadata, response_mutations=(Mutation("x-a", "filter"),)))


@pytest.fixture
def port(cart: Cart) -> Iterator[int]:
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [cart.threads()])
        reflection.enable_server_reflection((SERVICE,), server)
        taken = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield taken
        assert server.stop(0).wait(PATIENCE)


# --- Channels


@pytest.mark.parametrize("filters", [(), (PASS,)], ids=["no filter", "a filter"])
async def test_generated_code_calls_through_our_channels(port: int, filters: tuple[Doing, ...]) -> None:
    asked = ServerReflectionRequest(list_services="")
    with authplane.grpc.channel(f"127.0.0.1:{port}", filters=filters) as channel:
        blocking_stub: Any = ServerReflectionStub(channel)
        blocking = blocking_stub.ServerReflectionInfo(iter((asked,)), timeout=PATIENCE)
        names = [each.name for reply in blocking for each in reply.list_services_response.service]
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=filters) as aio_channel:
        stub: Any = ServerReflectionStub(aio_channel)  # type: ignore[arg-type]  # as generated code does
        replies = [each async for each in stub.ServerReflectionInfo(iter((asked,)), timeout=PATIENCE)]
    assert names == [each.name for reply in replies for each in reply.list_services_response.service] == [SERVICE]


@pytest.mark.parametrize("filters", [(), (PASS,)], ids=["no filter", "a filter"])
async def test_requests_may_be_named(port: int, filters: tuple[Doing, ...]) -> None:
    with authplane.grpc.channel(f"127.0.0.1:{port}", filters=filters) as channel:
        one: Any = channel.unary_unary(PATHS["unary_unary"])
        many: Any = channel.stream_unary(PATHS["stream_unary"])
        assert one(request=b"a", timeout=PATIENCE) == b"a"
        assert many(request_iterator=iter((b"a", b"b")), timeout=PATIENCE) == b"ab"
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=filters) as aio_channel:
        aio_one: Any = aio_channel.unary_unary(PATHS["unary_unary"])
        aio_many: Any = aio_channel.stream_unary(PATHS["stream_unary"])
        assert await aio_one(request=b"a", timeout=PATIENCE) == b"a"
        assert await aio_many(request_iterator=iter((b"a", b"b")), timeout=PATIENCE) == b"ab"
        assert await aio_many(iter((b"a", b"b")), PATIENCE) == b"ab"


@pytest.mark.slow
def test_filters_that_wait_one_after_the_other_have_no_more_time_than_the_call(port: int, cart: Cart) -> None:
    with authplane.grpc.channel(f"127.0.0.1:{port}", filters=[Sleeping(0.3)] * 60) as channel:
        ended = threading.Event()

        def fail() -> None:
            assert refusal(channel, timeout=0.5).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            ended.set()

        threading.Thread(target=fail, daemon=True).start()
        # All of them together would take 18 s.
        assert ended.wait(PATIENCE)
    assert cart.calls == 0


@pytest.mark.parametrize("filters", [(), (PASS,)], ids=["no filter", "a filter"])
async def test_a_channel_that_closes_with_grace_lets_calls_end(
    port: int, cart: Cart, filters: tuple[Doing, ...]
) -> None:
    cart.hold.clear()
    channel = authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=filters)
    for number in range(2):
        # The first call finds no connection to use at once.
        made: Any = channel.unary_unary(PATHS["unary_unary"])(b"%d" % number, timeout=PATIENCE)
        assert await asyncio.to_thread(cart.entered.wait, PATIENCE)
        cart.entered.clear()
        if number == 0:
            cart.hold.set()
            assert await made == b"0"
            cart.hold.clear()
    closing = asyncio.ensure_future(channel.close(PATIENCE))
    await asyncio.sleep(0)
    cart.hold.set()
    assert await made == b"1"
    await closing


async def test_a_channel_that_closes_cancels_calls_when_their_grace_is_over(port: int, cart: Cart) -> None:
    cart.hold.clear()
    channel = authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=[PASS])
    made: Any = channel.unary_unary(PATHS["unary_unary"])(b"a", timeout=PATIENCE)
    assert await asyncio.to_thread(cart.entered.wait, PATIENCE)
    await channel.close(0.1)
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await made
    cart.hold.set()


async def test_other_channels_close_while_somebody_waits_for_a_call_of_ours(port: int, cart: Cart) -> None:
    cart.hold.clear()
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=[EDIT]) as channel:
        made: Any = channel.unary_stream(PATHS["unary_stream"])(b"a", timeout=PATIENCE)
        inner: Any = await made._interceptors_task if hasattr(made, "_interceptors_task") else made
        waiting = asyncio.ensure_future(inner.initial_metadata())
        await asyncio.sleep(0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}"):
            pass
        cart.hold.set()
        assert ("x-a", "filter") in tuple(await waiting)


async def test_a_call_is_drawn_once_whether_it_is_dropped() -> None:
    draws = iter([0.1, 0.9])
    half = Drop(category="load", fraction=Fraction(500_000))
    plan = Plan(
        rules=FixedRules(Routed(), passes=True),
        clusters={"": Backends(keys=("a",), drops=(half,))},
        draw=lambda: next(draws),
    )
    async with grpc.aio.insecure_channel("127.0.0.1:1") as nobody:
        pool = AioChannelPool(lambda _: AlreadyOpen(nobody, None))
        pool.keep(frozenset({"a"}))
        parts = AioChannelParts(
            naming=Naming(target="t", authority="t"), plan=AioCurrentPlan(plan), pool=pool, side=AioSideChannels()
        )
        async with AioFilteredChannel(parts) as channel:
            # A channel that is open is what the quick way needs.
            pooled = await pool.take("a")
            assert pooled is not None
            pool.release("a", pooled)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/a/b")(b"")
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "dropped by drop_overloads: load",
    )


async def test_a_channel_is_ready_when_it_is_connected(cart: Cart) -> None:
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, [cart.threads()])
        taken = server.add_insecure_port("127.0.0.1:0")
        options = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))
        aio_channel = authplane.grpc.aio.channel(f"127.0.0.1:{taken}", options=options)
        with authplane.grpc.channel(f"127.0.0.1:{taken}", options=options) as channel:
            ready = grpc.channel_ready_future(channel)
            assert aio_channel.get_state() is grpc.ChannelConnectivity.IDLE
            assert not ready.done()
            server.start()
            await asyncio.to_thread(ready.result, PATIENCE)
            async with asyncio.timeout(PATIENCE):
                await aio_channel.channel_ready()
        await aio_channel.close()
        assert server.stop(0).wait(PATIENCE)


def test_a_failing_callback_does_not_stop_other_callbacks() -> None:
    current = ThreadCurrentPlan()
    told: list[grpc.ChannelConnectivity] = []

    def fail(_: grpc.ChannelConnectivity) -> None:
        raise ZeroDivisionError

    current.tell(fail)
    current.tell(told.append)
    current.set(Plan(rules=FixedRules(Routed()), clusters={}, draw=lambda: 0.0))
    assert told == [grpc.ChannelConnectivity.CONNECTING, grpc.ChannelConnectivity.READY]


def test_methods_that_are_made_for_one_call_leave_nothing_behind(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        pooled = PooledChannel(channel, AlreadyOpen(channel, None))
        for _ in range(50):
            method = Method("unary_unary", PATHS["unary_unary"], lambda data: data, lambda data: data)
            assert method.on(pooled)(b"a", timeout=PATIENCE) == b"a"
            assert method.on(pooled) is method.on(pooled)
        assert pooled._made == {}


def test_compression_also_applies_if_a_cluster_names_the_certificates() -> None:
    reaching = Reaching(
        authority="a",
        credentials=authplane.grpc.XdsChannelCredentials(None),
        options=(),
        compression=grpc.Compression.Gzip,
        providers={},
    )
    opener: Any = reaching.opener(BackendKey("ipv4:127.0.0.1:1", "round_robin", ClientTls(roots=SystemRoots())))
    assert ("grpc.default_compression_algorithm", int(grpc.Compression.Gzip)) in opener._options


# --- Servers


def _added(cart: Cart, stack: str) -> Any:
    return (cart.threads if stack == "threads" else cart.loop)()


@pytest.mark.parametrize("filters", [(), (PASS,)], ids=["no filter", "a filter"])
def test_handlers_may_be_added_to_a_server_that_has_started(cart: Cart, stack: str, filters: tuple[Doing, ...]) -> None:
    loop, pool = LoopThread(), ThreadPoolExecutor(2)

    async def begin() -> Any:
        made = authplane.grpc.aio.server(filters=filters)
        taken = made.add_insecure_port("127.0.0.1:0")
        await made.start()
        return made, taken

    if stack == "threads":
        server: Any = authplane.grpc.server(pool, filters=filters)
        taken = server.add_insecure_port("127.0.0.1:0")
        server.start()
    else:
        server, taken = loop.run(begin())
    server.add_generic_rpc_handlers((_added(cart, stack),))
    with grpc.insecure_channel(f"127.0.0.1:{taken}") as channel:
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
    if stack == "threads":
        assert server.stop(0).wait(PATIENCE)
    else:
        loop.run(server.stop(0))
    loop.close()
    pool.shutdown()


@pytest.mark.parametrize("intercepted", [False, True])
def test_the_status_of_a_handler_applies_if_it_returns_nothing(serve: Serve, stack: str, intercepted: bool) -> None:
    def say(_: bytes, context: Any) -> Any:
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("no such thing")

    async def aio_say(_: bytes, context: Any) -> Any:
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("no such thing")

    behave = say if stack == "threads" else aio_say
    handler: Any = grpc.unary_unary_rpc_method_handler(behave, None, lambda text: text.encode())
    cart = Cart()
    cart.threads = cart.loop = lambda: grpc.method_handlers_generic_handler(  # type: ignore[method-assign]
        SERVICE, {"unary_unary": handler}
    )
    recording: Any = Recording([], "one") if stack == "threads" else AioRecording([], "one")
    taken = serve(cart, filters=[EDIT], interceptors=[recording] if intercepted else [])
    with grpc.insecure_channel(f"127.0.0.1:{taken}") as channel:
        error = refusal(channel)
    assert (error.code(), error.details(), tuple(error.initial_metadata())) == (
        grpc.StatusCode.NOT_FOUND,
        "no such thing",
        (),
    )


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.fixture
def xds_serve(stack: str, control: Control) -> Iterator[Callable[..., Served]]:
    with xds_serving(stack) as make:
        yield lambda cart, **options: make(cart, xds=control.bootstrap(), **options)


def test_a_server_that_stops_can_be_told_to_hurry(xds_serve: Any, control: Control, cart: Cart) -> None:
    server = xds_serve(cart)
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    cart.hold.clear()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        multi: Any = channel.stream_stream(PATHS["stream_stream"])
        under_way = multi(iter((b"a", b"b")), timeout=60)
        assert next(under_way) == b"a"
        patient = threading.Thread(target=server.stop, args=(60,), daemon=True)
        patient.start()
        with suppress(TimeoutError):
            server.stop(0)
        with pytest.raises(grpc.RpcError) as caught:
            next(under_way)
        cart.hold.set()
        patient.join(PATIENCE)
        assert caught.value.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
        assert not patient.is_alive()


@dataclass(frozen=True)
class Unmakeable:
    """A configuration of which no filter can be made."""

    def build(self, state: State, override: object | None) -> Any:
        raise ZeroDivisionError


def _registry() -> Any:
    kind = FilterType(
        type_urls=("google.protobuf.Empty",), sides=frozenset(Side), parse=lambda _packed, _scope: Unmakeable()
    )
    return filter_registry(kind)


def test_a_configuration_of_which_no_rules_can_be_made_lets_no_call_through(
    xds_serve: Any, control: Control, cart: Cart
) -> None:
    changes: list[Any] = []
    changed = threading.Event()

    def told(state: Any) -> None:
        changes.append(state)
        changed.set()

    server = xds_serve(cart, registry=_registry(), on_serving_state=told)
    control.publish(listener(server.port, manager()))
    assert server.is_serving()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        changed.clear()
        control.publish(listener(server.port, manager(http_filter("broken", Empty()))))
        assert changed.wait(PATIENCE)
        assert changes[-1] == NotServing(f"127.0.0.1:{server.port}", "cannot create the filters")
        assert refusal(channel, timeout=1).code() is not grpc.StatusCode.OK
    assert cart.calls == 1
    changed.clear()
    control.publish(listener(server.port, manager(inline=routes("inline", served()))))
    assert changed.wait(PATIENCE)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert call(channel, "unary_unary", b"b")[0] == [b"b"]


def test_a_call_as_filters_see_it_has_the_time_that_is_left(port: int) -> None:
    seen: list[Call] = []

    def look(seen_call: Call) -> Proceed:
        seen.append(seen_call)
        return Proceed(metadata=seen_call.metadata)

    with authplane.grpc.channel(f"127.0.0.1:{port}", filters=[Doing(look)]) as channel:
        call(channel, "unary_unary", b"a", timeout=3)
        call(channel, "unary_unary", b"a", timeout=None)
    first, second = (each.remaining for each in seen)
    assert first is not None
    assert (0 < first <= 3, second) == (True, None)
