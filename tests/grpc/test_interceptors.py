"""Interceptors of users beside filters, and handlers for threads on a server with an event loop."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.grpc.acting_filters import Doing
from tests.support.grpc.shop_servers import KINDS, PATHS, PATIENCE, Cart, LoopThread, Serve, call, refusal

import authplane.grpc.aio
from authplane.grpc import Call, Code, Mutation, Proceed, Stop


def overwrite(call: Call) -> Proceed:
    metadata = (*(each for each in call.metadata if each[0] != "x-user"), ("x-user", "alice"))
    return Proceed(metadata=metadata, response_mutations=(Mutation("x-decided-by", "tests"),))


FILTER = Doing(overwrite)


class Recording(grpc.ServerInterceptor):
    """Writes down what it sees, and passes on."""

    def __init__(self, log: list[Any], name: str) -> None:
        self.log = log
        self.name = name

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        note(self.log, self.name, handler_call_details)
        return continuation(handler_call_details)


class AioRecording(grpc.aio.ServerInterceptor):
    """The same, on an event loop."""

    def __init__(self, log: list[Any], name: str) -> None:
        self.log = log
        self.name = name

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        note(self.log, self.name, handler_call_details)
        return await continuation(handler_call_details)


def note(log: list[Any], name: str, details: Any) -> None:
    log.append((name, [value for key, value in details.invocation_metadata if key == "x-user"]))


class Refusing(grpc.ServerInterceptor):
    """Refuses every call, by a handler of one kind for all kinds of calls."""

    def __init__(self) -> None:
        def refuse(_: Any, context: Any) -> Any:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "interceptor")

        self.handler: Any = grpc.unary_unary_rpc_method_handler(refuse)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return self.handler


class AioRefusing(grpc.aio.ServerInterceptor):
    def __init__(self) -> None:
        async def refuse(_: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "interceptor")

        self.handler: Any = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return self.handler


def recording(stack: str, log: list[Any], name: str) -> Any:
    return Recording(log, name) if stack == "threads" else AioRecording(log, name)


@pytest.mark.parametrize("filters", [(), (FILTER,)], ids=["no filters", "a filter"])
@pytest.mark.parametrize("kind", KINDS)
def test_interceptors_come_after_filters_and_see_what_these_have_made_of_a_call(
    serve: Serve, cart: Cart, stack: str, kind: str, filters: tuple[Doing, ...]
) -> None:
    log: list[Any] = []
    port = serve(cart, filters=filters, interceptors=[recording(stack, log, "one"), recording(stack, log, "two")])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        responses, made = call(channel, kind, b"a", b"b", metadata=(("x-user", "forged"),))
    user = "alice" if filters else "forged"
    assert log == [("one", [user]), ("two", [user])]
    assert cart.header("x-user") == [user]
    assert responses == {"unary_unary": [b"a"], "stream_unary": [b"ab"], "unary_stream": [b"a", b"a"]}.get(
        kind, [b"a", b"b"]
    )
    assert (("x-decided-by", "tests") in [tuple(each) for each in made.initial_metadata()]) == bool(filters)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_filters_stop_reaches_no_interceptor(serve: Serve, cart: Cart, stack: str, kind: str) -> None:
    log: list[Any] = []
    stop = Doing(Stop(code=Code.ABORTED, message="filter"))
    port = serve(cart, filters=[stop], interceptors=[recording(stack, log, "one")])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        error = refusal(channel, kind)
    assert (error.code(), error.details(), log, cart.calls) == (grpc.StatusCode.ABORTED, "filter", [], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interceptor_may_refuse_calls_of_all_kinds(serve: Serve, cart: Cart, stack: str, kind: str) -> None:
    port = serve(cart, filters=[FILTER], interceptors=[Refusing() if stack == "threads" else AioRefusing()])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        error = refusal(channel, kind)
    assert (error.code(), error.details(), cart.calls) == (grpc.StatusCode.FAILED_PRECONDITION, "interceptor", 0)


def test_an_interceptor_sees_calls_without_a_handler(serve: Serve, cart: Cart, stack: str) -> None:
    log: list[Any] = []
    port = serve(cart, interceptors=[recording(stack, log, "one")])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        missing: Any = channel.unary_unary("/shop.Cart/missing")
        with pytest.raises(grpc.RpcError) as caught:
            missing(b"", timeout=PATIENCE)
    assert (caught.value.code(), log) == (grpc.StatusCode.UNIMPLEMENTED, [("one", [])])


class Words:
    """A handler with serializers that fail."""

    @staticmethod
    def read(data: bytes) -> str:
        return data.decode("ascii")

    @staticmethod
    def write(text: str) -> bytes:
        return text.encode("ascii")


@pytest.mark.parametrize(("request_", "answer"), [(b"\xff", "ok"), (b"ok", "\xff")])
@pytest.mark.parametrize("interceptors", [False, True])
def test_what_is_no_message_is_a_failure(
    serve: Serve, stack: str, request_: bytes, answer: str, interceptors: bool
) -> None:
    async def aio_say(_: str, __: Any) -> str:
        return answer

    def say(_: str, __: Any) -> str:
        return answer

    handler = grpc.unary_unary_rpc_method_handler(say if stack == "threads" else aio_say, Words.read, Words.write)
    cart = Cart()
    cart.threads = cart.loop = lambda: grpc.method_handlers_generic_handler(  # type: ignore[method-assign]
        "shop.Cart", {"unary_unary": handler}
    )
    log: list[Any] = []
    chosen = [recording(stack, log, "one")] if interceptors else []
    port = serve(cart, filters=[FILTER], interceptors=chosen)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        code = refusal(channel) if request_ == b"x" else _failure(channel, request_)
    assert code in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


def _failure(channel: grpc.Channel, request: bytes) -> grpc.StatusCode:
    multi: Any = channel.unary_unary(PATHS["unary_unary"])
    with pytest.raises(grpc.RpcError) as caught:
        multi(request, timeout=PATIENCE)
    return caught.value.code()


# --- Handlers for threads on a server with an event loop


@pytest.fixture
def mixed(cart: Cart) -> Iterator[Any]:
    loop = LoopThread()
    started: list[Any] = []
    with ThreadPoolExecutor(4) as pool:

        async def begin(options: dict[str, Any]) -> int:
            server = authplane.grpc.aio.server(pool, [cart.threads()], **options)
            port: int = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            started.append(server)
            return port

        yield lambda **options: loop.run(begin(options))
        for each in started:
            loop.run(each.stop(0))
    loop.close()


@pytest.mark.parametrize("intercepted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_handlers_for_threads_are_served_by_an_event_loop(mixed: Any, cart: Cart, kind: str, intercepted: bool) -> None:
    log: list[Any] = []
    port = mixed(filters=[FILTER], interceptors=[AioRecording(log, "one")] if intercepted else [])
    ended: list[str] = []
    cart.before = lambda context: context.add_callback(lambda: ended.append(context.peer()))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        responses, made = call(channel, kind, b"a", b"b", metadata=(("x-user", "forged"),))
    assert responses[-1] == {"stream_unary": b"ab", "stream_stream": b"b"}.get(kind, b"a")
    assert (cart.header("x-user"), len(log)) == (["alice"], int(intercepted))
    assert ("x-decided-by", "tests") in [tuple(each) for each in made.initial_metadata()]
    assert len(ended) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_handlers_for_threads_may_end_a_call(mixed: Any, cart: Cart, kind: str) -> None:
    port = mixed(filters=[FILTER])
    cart.before = lambda context: context.abort(grpc.StatusCode.FAILED_PRECONDITION, "handler")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        error = refusal(channel, kind)
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "handler")


@pytest.mark.parametrize("intercepted", [False, True])
def test_handlers_for_threads_may_end_a_call_after_some_responses(mixed: Any, cart: Cart, intercepted: bool) -> None:
    def count(_: bytes, context: Any) -> Iterator[bytes]:
        yield b"1"
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "handler", (("x-why", "tests"),))

    handler: Any = grpc.unary_stream_rpc_method_handler(count)
    cart.threads = lambda: grpc.method_handlers_generic_handler(  # type: ignore[method-assign]
        "shop.Cart", {"unary_stream": handler}
    )
    port = mixed(filters=[FILTER], interceptors=[AioRecording([], "one")] if intercepted else [])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        multi: Any = channel.unary_stream(PATHS["unary_stream"])
        for _ in range(20):
            made = multi(b"a", timeout=PATIENCE)
            assert next(made) == b"1"
            with pytest.raises(grpc.RpcError) as caught:
                next(made)
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "handler")
            assert ("x-why", "tests") in [tuple(each) for each in made.trailing_metadata()]
