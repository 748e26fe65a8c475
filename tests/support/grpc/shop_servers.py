"""Servers of both kinds, an authorization service, and clients, for tests of the public interface."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import grpc
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.eventually import eventually

import authplane.grpc
import authplane.grpc.aio
from authplane.dataplane.runtime.servers.aio_filtered_server import AioFilteredServer
from authplane.dataplane.runtime.servers.thread_filtered_server import FilteredServer

T = TypeVar("T")

SERVICE = "shop.Cart"
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
PATHS = {kind: f"/{SERVICE}/{kind}" for kind in KINDS}
PATIENCE = 5.0
STACKS = ("threads", "loop")


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(20)

    def is_idle(self) -> bool:
        """Wait until nothing runs: grpcio takes a moment to end its own tasks."""

        async def alone() -> bool:
            return len(asyncio.all_tasks()) == 1

        async def wait() -> bool:
            try:
                await eventually(alone)
            except TimeoutError:
                return False
            return True

        return self.run(wait())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Cart:
    """A service of all kinds of methods. It says what it is told, and remembers how."""

    def __init__(self) -> None:
        self.metadata: list[tuple[tuple[str, str | bytes], ...]] = []
        self.before: Callable[[Any], None] = lambda _context: None
        """Done by handlers of threads before they answer."""
        self.note: Callable[[Any], object] = lambda _context: None
        """Done by all handlers with the context of a call."""
        self.entered = threading.Event()
        self.hold = threading.Event()
        self.hold.set()

    @property
    def calls(self) -> int:
        return len(self.metadata)

    def header(self, name: str) -> list[str | bytes]:
        """Return the values of a header in the last call."""
        return [value for key, value in self.metadata[-1] if key == name]

    def _note(self, context: Any) -> None:
        self.metadata.append(tuple((each.key, each.value) for each in context.invocation_metadata()))
        self.note(context)
        self.entered.set()

    def threads(self) -> grpc.GenericRpcHandler:
        def single(request: Any, context: Any) -> bytes:
            self._note(context)
            self.hold.wait(PATIENCE)
            self.before(context)
            return request if isinstance(request, bytes) else b"".join(request)

        def many(request: Any, context: Any) -> Iterator[bytes]:
            self._note(context)
            self.before(context)
            for each in (request, request) if isinstance(request, bytes) else request:
                yield each
                self.hold.wait(PATIENCE)

        return _handlers(single, many)

    def loop(self) -> grpc.GenericRpcHandler:
        async def read(request: Any) -> AsyncIterator[bytes]:
            if isinstance(request, bytes):
                yield request
                yield request
                return
            async for each in request:
                yield each

        async def held() -> None:
            if not self.hold.is_set():
                await asyncio.to_thread(self.hold.wait, PATIENCE)

        async def single(request: Any, context: Any) -> bytes:
            self._note(context)
            await held()
            return request if isinstance(request, bytes) else b"".join([each async for each in request])

        async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
            self._note(context)
            async for each in read(request):
                yield each
                await held()

        return _handlers(single, many)


def _handlers(single: Any, many: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "unary_unary": grpc.unary_unary_rpc_method_handler(single),
            "unary_stream": grpc.unary_stream_rpc_method_handler(many),
            "stream_unary": grpc.stream_unary_rpc_method_handler(single),
            "stream_stream": grpc.stream_stream_rpc_method_handler(many),
        },
    )


class Serve(Protocol):
    """Starts a server with filters; returns the port."""

    def __call__(self, cart: Cart, /, address: str = ..., credentials: Any = ..., **options: Any) -> int: ...


@contextmanager
def serving(stack: str) -> Iterator[Serve]:
    """Start servers of one kind; all have ended when the block ends."""
    if stack == "threads":
        with _serving_threads() as serve:
            yield serve
    else:
        with _serving_loop() as serve:
            yield serve


@contextmanager
def _serving_threads() -> Iterator[Serve]:
    started: list[FilteredServer] = []
    with ThreadPoolExecutor(40) as pool:

        def serve(cart: Cart, /, address: str = "127.0.0.1:0", credentials: Any = None, **options: Any) -> int:
            server = authplane.grpc.server(pool, [cart.threads()], **options)
            port = add_port(server, address, credentials)
            server.start()
            started.append(server)
            return port

        try:
            yield serve
        finally:
            for each in started:
                assert each.stop(0).wait(PATIENCE)


@contextmanager
def _serving_loop() -> Iterator[Serve]:
    loop = LoopThread()
    started: list[AioFilteredServer] = []

    async def begin(cart: Cart, address: str, credentials: Any, options: dict[str, Any]) -> int:
        server = authplane.grpc.aio.server(None, [cart.loop()], **options)
        port = add_port(server, address, credentials)
        await server.start()
        started.append(server)
        return port

    def serve(cart: Cart, /, address: str = "127.0.0.1:0", credentials: Any = None, **options: Any) -> int:
        return loop.run(begin(cart, address, credentials, options))

    try:
        yield serve
    finally:
        for each in started:
            loop.run(each.stop(0))
        idle = loop.is_idle()
        loop.close()
        assert idle


def add_port(server: Any, address: str, credentials: Any) -> int:
    port = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    assert isinstance(port, int)
    return port


def call(channel: grpc.Channel, kind: str, *messages: bytes, **options: Any) -> tuple[list[bytes], Any]:
    """Make a call of any kind and wait for its end; returns the responses and the call, or raises how it failed."""
    options.setdefault("timeout", PATIENCE)
    multi: Any = getattr(channel, kind)(PATHS[kind])
    requests: Any = iter(messages) if kind.startswith("stream") else messages[0]
    if kind.endswith("unary"):
        response, ended = multi.with_call(requests, **options)
        return [response], ended
    made = multi(requests, **options)
    return list(made), made


def refusal(channel: grpc.Channel, kind: str = "unary_unary", **options: Any) -> Any:
    """Make a call that fails; returns how."""
    try:
        got = call(channel, kind, b"x", **options)
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"the call was answered: {got[0]}")


class Authority:
    """An authorization service."""

    def __init__(self) -> None:
        self.checks: list[pb.CheckRequest] = []
        self.metadata: list[tuple[tuple[str, str | bytes], ...]] = []
        self.decide: Callable[[pb.CheckRequest], pb.CheckResponse | bytes] = lambda _check: allow()
        self.asked = threading.Event()
        self.given_up = threading.Event()
        """Set when a check has ended, answered or not."""
        self.hold = threading.Event()
        self.hold.set()
        self.target = ""

    def check(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.metadata.append(tuple((key, value) for key, value in context.invocation_metadata()))
        check = pb.CheckRequest.FromString(body)
        self.checks.append(check)
        context.add_callback(self.given_up.set)
        self.asked.set()
        self.hold.wait(PATIENCE)
        answer = self.decide(check)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def handler(self) -> grpc.GenericRpcHandler:
        made: Any = grpc.unary_unary_rpc_method_handler(self.check)
        return grpc.method_handlers_generic_handler("envoy.service.auth.v3.Authorization", {"Check": made})


@contextmanager
def authorizing(
    address: str = "127.0.0.1:0", credentials: Any = None, authority: Authority | None = None
) -> Iterator[Authority]:
    """Run an authorization service."""
    authority = authority or Authority()
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [authority.handler()])
        authority.target = f"127.0.0.1:{add_port(server, address, credentials)}"
        server.start()
        try:
            yield authority
        finally:
            authority.hold.set()
            assert server.stop(0).wait(PATIENCE)


def allow(**headers: str) -> pb.CheckResponse:
    response = pb.CheckResponse()
    for key, value in headers.items():
        added = response.ok_response.headers.add()
        added.header.key, added.header.value = key.replace("_", "-"), value
    return response


def deny(status: int = 403, message: str = "", **headers: str) -> pb.CheckResponse:
    response = pb.CheckResponse()
    response.status.code = 7
    response.status.message = message
    response.denied_response.status.code = status  # type: ignore[assignment]
    for key, value in headers.items():
        added = response.denied_response.headers.add()
        added.header.key, added.header.value = key.replace("_", "-"), value
    return response
