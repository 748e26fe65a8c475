"""Servers and channels of ours beside grpcio's own: whatever is done, the same comes of it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.grpc.behaviours import Loop, Threads, handlers_of, names
from tests.grpc.test_interceptors import AioRecording, Recording
from tests.support.grpc.acting_filters import Doing
from tests.support.grpc.shop_servers import PATIENCE, LoopThread

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import Mutation, Proceed

PASS = Doing(lambda call: Proceed(metadata=call.metadata))
EDIT = Doing(
    lambda call: Proceed(metadata=(*call.metadata, ("x-q", "filter")), response_mutations=(Mutation("x-a", "filter"),))
)
WAYS: dict[str, dict[str, Any]] = {
    "without filters": {},
    "a filter": {"filters": [PASS]},
    "a filter that changes things": {"filters": [EDIT]},
    "a filter and an interceptor": {"filters": [PASS], "intercepted": True},
    "a filter that changes things and an interceptor": {"filters": [EDIT], "intercepted": True},
}


@pytest.fixture(scope="module")
def thread_ports() -> Iterator[dict[str, int]]:
    with ThreadPoolExecutor(8) as pool, ExitStack() as started:

        def start(server: Any) -> int:
            port: int = server.add_insecure_port("127.0.0.1:0")
            server.start()
            started.callback(lambda: server.stop(0).wait(PATIENCE))
            return port

        ports = {"grpcio": start(grpc.server(pool, [handlers_of(Threads)]))}
        for name, way in WAYS.items():
            interceptors = [Recording([], "one")] if "intercepted" in way else None
            made = authplane.grpc.server(pool, [handlers_of(Threads)], interceptors, filters=way.get("filters", ()))
            ports[name] = start(made)
        yield ports


@pytest.fixture(scope="module")
def loop_ports() -> Iterator[dict[str, int]]:
    loop = LoopThread()
    started: list[Any] = []

    async def start(make: Callable[[], Any]) -> int:
        server = make()
        port: int = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        started.append(server)
        return port

    ports = {"grpcio": loop.run(start(lambda: grpc.aio.server(None, [handlers_of(Loop)])))}
    for name, way in WAYS.items():
        interceptors = [AioRecording([], "one")] if "intercepted" in way else None
        ports[name] = loop.run(
            start(
                lambda interceptors=interceptors, way=way: authplane.grpc.aio.server(  # type: ignore[misc]
                    None, [handlers_of(Loop)], interceptors, filters=way.get("filters", ())
                )
            )
        )
    yield ports
    for each in started:
        loop.run(each.stop(0))
    loop.close()


def outcome(channel: Any, name: str) -> tuple[Any, ...]:
    """Make a call; returns all that a client sees of it."""
    responses: list[bytes] = []
    if name.startswith("many"):
        made = channel.unary_stream(f"/shop.Cart/{name}")(b"x", timeout=PATIENCE)
        with suppress(grpc.RpcError):
            responses.extend(made)
    else:
        made = channel.unary_unary(f"/shop.Cart/{name}").future(b"x", timeout=PATIENCE)
        if made.exception() is None:
            responses.append(made.result())
    headers = [tuple(each) for each in made.initial_metadata() if each[0] != "x-a"]
    return made.code(), made.details(), responses, headers, [tuple(each) for each in made.trailing_metadata()]


@pytest.mark.parametrize("strictly", ["", "_strictly"])
@pytest.mark.parametrize("name", names(Threads))
def test_a_server_with_threads_answers_as_grpcio(thread_ports: dict[str, int], name: str, strictly: str) -> None:
    assert_all_alike(thread_ports, name + strictly)


@pytest.mark.parametrize("strictly", ["", "_strictly"])
@pytest.mark.parametrize("name", names(Loop))
def test_a_server_with_a_loop_answers_as_grpcio(loop_ports: dict[str, int], name: str, strictly: str) -> None:
    assert_all_alike(loop_ports, name + strictly)


def assert_all_alike(ports: dict[str, int], name: str) -> None:
    found = {}
    for way, port in ports.items():
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            found[way] = outcome(channel, name)
    assert found == dict.fromkeys(found, found["grpcio"])


@pytest.mark.parametrize("name", names(Threads))
@pytest.mark.parametrize("filters", [[], [PASS], [EDIT]], ids=["no filter", "a filter", "a change"])
def test_a_channel_tells_what_grpcio_tells(thread_ports: dict[str, int], name: str, filters: list[Doing]) -> None:
    target = f"127.0.0.1:{thread_ports['grpcio']}"
    with grpc.insecure_channel(target) as theirs, authplane.grpc.channel(target, filters=filters) as ours:
        assert outcome(ours, name) == outcome(theirs, name)


async def aio_outcome(channel: Any, name: str) -> tuple[Any, ...]:
    responses, kind = [], None
    path = f"/shop.Cart/{name}"
    made = (channel.unary_stream if name.startswith("many") else channel.unary_unary)(path)(b"x", timeout=PATIENCE)
    try:
        responses = [each async for each in made] if name.startswith("many") else [await made]
    except grpc.aio.AioRpcError as error:
        kind = type(error)
    headers = [each for each in await made.initial_metadata() if each[0] != "x-a"]
    return await made.code(), await made.details(), responses, headers, tuple(await made.trailing_metadata()), kind


@pytest.mark.parametrize("name", [name for name in names(Threads) if name != "cancels"])
@pytest.mark.parametrize("filters", [[], [PASS], [EDIT]], ids=["no filter", "a filter", "a change"])
async def test_a_channel_of_a_loop_tells_what_grpcio_tells(
    thread_ports: dict[str, int], name: str, filters: list[Doing]
) -> None:
    target = f"127.0.0.1:{thread_ports['grpcio']}"
    async with (
        grpc.aio.insecure_channel(target) as theirs,
        authplane.grpc.aio.channel(target, filters=filters) as ours,
    ):
        assert await aio_outcome(ours, name) == await aio_outcome(theirs, name)


def _explode(_: object) -> Any:
    raise ZeroDivisionError


def _say(channel: Any, *messages: Any) -> Any:
    return channel.unary_unary("/shop.Cart/sends_trailers", *messages)


ODD_USES: dict[str, Callable[[Any], Any]] = {
    "a header that is no header": lambda channel: _say(channel)(b"x", timeout=2, metadata=(("Upper", "x"),)),
    "a header that is no text": lambda channel: _say(channel)(b"x", timeout=2, metadata=(("a", b"\xff"),)),
    "a header without a value": lambda channel: _say(channel)(b"x", timeout=2, metadata=(("a", None),)),
    "headers in a list": lambda channel: _say(channel)(b"x", timeout=2, metadata=[("a", "1")]),
    "a request that is no bytes": lambda channel: _say(channel)("text", timeout=2),
    "a request that cannot be written": lambda channel: _say(channel, _explode)(b"x", timeout=2),
    "a response that cannot be read": lambda channel: _say(channel, None, _explode)(b"x", timeout=2),
    "a deadline in the past": lambda channel: _say(channel)(b"x", timeout=-1),
    "no request": lambda channel: _say(channel)(),
    "an unknown argument": lambda channel: _say(channel)(b"x", timeout=2, colour="red"),
    "credentials in plain text": lambda channel: _say(channel)(
        b"x", timeout=2, credentials=grpc.access_token_call_credentials("token")
    ),
    "compression": lambda channel: _say(channel)(b"x", timeout=2, compression=grpc.Compression.Gzip),
    "everything in its place": lambda channel: _say(channel)(b"x", 2, (("a", "1"),), None, True, grpc.Compression.Gzip),
}


@pytest.mark.parametrize("use", ODD_USES.values(), ids=ODD_USES.keys())
@pytest.mark.parametrize("filters", [[], [PASS]], ids=["no filter", "a filter"])
def test_odd_uses_of_a_channel_end_as_with_grpcio(
    thread_ports: dict[str, int], use: Callable[[Any], Any], filters: list[Doing]
) -> None:
    target = f"127.0.0.1:{thread_ports['grpcio']}"

    def tried(channel: Any) -> Any:
        try:
            return use(channel)
        except grpc.RpcError as error:
            return error.code(), error.details()
        except Exception as error:  # noqa: BLE001 (which one is what counts)
            return type(error)

    with grpc.insecure_channel(target) as theirs, authplane.grpc.channel(target, filters=filters) as ours:
        assert tried(ours) == tried(theirs)
