"""Channels with filters named in code, of both kinds."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.grpc.acting_filters import Doing, Sleeping
from tests.support.grpc.channel_kinds import Ways, no_task_is_left
from tests.support.grpc.shop_servers import KINDS, PATHS, PATIENCE, Authority, Cart, allow, call, deny

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import Call, Change, Mutation, Proceed, Side, ext_authz


@pytest.fixture
def port(cart: Cart) -> Iterator[int]:
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [cart.threads()])
        taken = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield taken
        assert server.stop(0).wait(PATIENCE)


@contextmanager
def threads(port: int, *filters: Any, **options: Any) -> Iterator[Any]:
    with authplane.grpc.channel(f"127.0.0.1:{port}", filters=filters, **options) as channel:
        yield channel


@pytest.fixture
async def open_channel(stack: str, port: int) -> AsyncIterator[Any]:
    made: list[Any] = []

    def connect(*filters: Any, **options: Any) -> Ways:
        make: Any = authplane.grpc.channel if stack == "threads" else authplane.grpc.aio.channel
        made.append(make(f"127.0.0.1:{port}", filters=filters, **options))
        return Ways(stack, made[-1])

    yield connect
    for each in made:
        if stack == "threads":
            await asyncio.to_thread(each.close)
        else:
            await each.close()
    await no_task_is_left()


@pytest.mark.parametrize("kind", KINDS)
async def test_without_filters_calls_are_made_as_ever(open_channel: Any, cart: Cart, kind: str) -> None:
    ways = open_channel()
    for _ in range(2):
        responses, _ = await ways.call(kind, b"a", metadata=(("x-a", "1"),))
        assert responses[0] == b"a"
        assert cart.header("x-a") == ["1"]


@pytest.mark.requirement("EA-20", "EA-33", "EA-37")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_checked_once_and_goes_out_as_the_service_says(
    open_channel: Any, cart: Cart, authority: Authority, kind: str, port: int
) -> None:
    def decide(_: object) -> Any:
        response = allow(x_user="alice")
        added = response.ok_response.response_headers_to_add.add()
        added.header.key, added.header.value = "x-decided-by", "tests"
        return response

    counted: list[tuple[str, str]] = []
    authority.decide = decide
    ways = open_channel(
        ext_authz(authority.target, credentials=None), count=lambda name, target: counted.append((name, target))
    )
    responses, initial = await ways.call(kind, b"a", b"b", metadata=(("x-user", "forged"),))
    assert responses[0] == (b"ab" if kind == "stream_unary" else b"a")
    assert cart.header("x-user") == ["alice"]
    assert initial["x-decided-by"] == "tests"
    (check,) = authority.checks
    assert check.attributes.request.http.path == PATHS[kind]
    assert not check.attributes.HasField("source")
    assert counted == [("grpc.client_ext_authz.allowed_rpcs", f"127.0.0.1:{port}")]


@pytest.mark.requirement("EA-31", "EA-32", "EA-36")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_denied_call_is_not_sent(open_channel: Any, cart: Cart, authority: Authority, kind: str) -> None:
    authority.decide = lambda _: deny(401, "who are you", www_authenticate="Bearer")
    error = await open_channel(ext_authz(authority.target, credentials=None)).refusal(kind)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "denied by the authorization service: who are you",
    )
    assert ("www-authenticate", "Bearer") in [tuple(each) for each in error.trailing_metadata()]
    assert cart.calls == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_ends_at_its_deadline_while_a_filter_waits(open_channel: Any, cart: Cart, kind: str) -> None:
    error = await open_channel(Sleeping(60)).refusal(kind, timeout=0.3)
    assert (error.code(), cart.calls) == (grpc.StatusCode.DEADLINE_EXCEEDED, 0)


@pytest.mark.slow
async def test_a_call_has_no_more_time_for_waiting(open_channel: Any, cart: Cart) -> None:
    cart.hold.clear()
    error = await open_channel(Sleeping(0.2)).refusal(timeout=0.4)
    cart.hold.set()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_filter_that_fails_stops_the_call(open_channel: Any, cart: Cart) -> None:
    def run(_: Call) -> Any:
        raise ZeroDivisionError

    error = await open_channel(Doing(run)).refusal()
    assert (error.code(), cart.calls) == (grpc.StatusCode.INTERNAL, 0)


async def test_what_a_filter_sees_of_a_call(open_channel: Any, port: int) -> None:
    seen: list[Call] = []

    def look(call: Call) -> Proceed:
        seen.append(call)
        return Proceed(metadata=call.metadata)

    await open_channel(Doing(look)).call("unary_unary", b"a", metadata=(("x-a-bin", b"\xff"),), timeout=3)
    (found,) = seen
    assert (found.side, found.path, found.authority, found.metadata, found.connection, found.target) == (
        Side.CLIENT,
        PATHS["unary_unary"],
        f"127.0.0.1:{port}",
        (("x-a-bin", b"\xff"),),
        None,
        f"127.0.0.1:{port}",
    )
    assert found.remaining is not None
    assert 0 < found.remaining <= 3


async def test_a_response_without_messages_is_not_changed(open_channel: Any) -> None:
    edits = Doing(
        lambda call: Proceed(
            metadata=call.metadata, response_mutations=(Mutation("x-a", "filter", Change.OVERWRITE_OR_ADD),)
        )
    )
    ways = open_channel(edits)
    path = "/shop.Cart/missing"
    if ways.stack == "threads":
        made: Any = ways.channel.unary_unary(path).future(b"")
        error = await asyncio.to_thread(made.exception, PATIENCE)
        initial = made.initial_metadata()
    else:
        made = ways.channel.unary_unary(path)(b"")
        assert await made.code() is grpc.StatusCode.UNIMPLEMENTED
        initial, error = await made.initial_metadata(), None
    assert error is None or error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert tuple(initial) == ()


class Adding(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), ("x-by", "interceptor"))
        return await continuation(client_call_details._replace(metadata=metadata), request)


async def test_filters_see_what_interceptors_have_made_of_a_call(port: int, cart: Cart) -> None:
    seen: list[Call] = []

    def look(call: Call) -> Proceed:
        seen.append(call)
        return Proceed(metadata=(*call.metadata, ("x-too", "filter")))

    async with authplane.grpc.aio.channel(
        f"127.0.0.1:{port}", filters=[Doing(look)], interceptors=[Adding()]
    ) as channel:
        assert await channel.unary_unary(PATHS["unary_unary"])(b"a", timeout=PATIENCE) == b"a"
    assert seen[0].metadata == (("x-by", "interceptor"),)
    assert (cart.header("x-by"), cart.header("x-too")) == (["interceptor"], ["filter"])


async def test_a_loop_goes_on_while_filters_wait(port: int) -> None:
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=[Sleeping(0.2)]) as channel:
        multi: Any = channel.unary_unary(PATHS["unary_unary"])
        async with asyncio.timeout(2), asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(_awaited(multi(b"%d" % number))) for number in range(20)]
        assert [each.result() for each in calls] == [b"%d" % number for number in range(20)]


async def test_a_call_that_is_cancelled_lets_go_of_its_filters(port: int, cart: Cart) -> None:
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}", filters=[Sleeping(60)]) as channel:
        made: Any = channel.unary_unary(PATHS["unary_unary"])(b"a")
        await asyncio.sleep(0)
        made.cancel()
        with pytest.raises(asyncio.CancelledError):
            await made
    assert cart.calls == 0


def test_a_future_is_a_future(port: int, cart: Cart) -> None:
    cart.hold.clear()
    with threads(port, Doing(lambda call: Proceed(metadata=call.metadata))) as channel:
        done = threading.Event()
        made = channel.unary_unary(PATHS["unary_unary"]).future(b"a", timeout=PATIENCE)
        made.add_done_callback(lambda _: done.set())
        assert not made.done()
        cart.hold.set()
        assert (made.result(PATIENCE), done.wait(PATIENCE)) == (b"a", True)


def test_interceptors_wrap_a_channel_of_ours(port: int, cart: Cart) -> None:
    class Tagging(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
            return continuation(client_call_details._replace(metadata=(("x-by", "interceptor"),)), request)

    with threads(port) as channel:
        tagged = grpc.intercept_channel(channel, Tagging())
        assert call(tagged, "unary_unary", b"a")[0] == [b"a"]
    assert cart.header("x-by") == ["interceptor"]


def test_a_channel_that_is_closed_makes_no_calls(port: int) -> None:
    with threads(port) as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)
    with pytest.raises(ValueError, match="closed channel"):
        call(channel, "unary_unary", b"x")


async def test_a_channel_of_a_loop_that_is_closed_makes_no_calls(port: int) -> None:
    async with authplane.grpc.aio.channel(f"127.0.0.1:{port}") as channel:
        pass
    with pytest.raises(grpc.aio.UsageError, match="closed"):
        channel.unary_unary(PATHS["unary_unary"])(b"x")


async def _awaited(made: Any) -> Any:
    return await made
