"""What handlers do, rightly or wrongly, in both stacks."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

HEADERS = (("x-h", "handler"),)
TRAILERS = (("x-t", "handler"), ("x-t-bin", b"\xff"))
NOT_FOUND = grpc.StatusCode.NOT_FOUND


class Lost(grpc.Status):
    code = grpc.StatusCode.DATA_LOSS
    details = "lost"
    trailing_metadata = (("x-t", "status"),)


class Threads:
    """Handlers of threads; the names of those with many responses begin with ``many``."""

    @staticmethod
    def fails(_: bytes, __: Any) -> Any:
        raise ValueError("boom")

    @staticmethod
    def aborts(_: bytes, context: Any) -> Any:
        context.abort(NOT_FOUND, "gone")

    @staticmethod
    def aborts_as_if_all_were_well(_: bytes, context: Any) -> Any:
        context.abort(grpc.StatusCode.OK, "fine")

    @staticmethod
    def aborts_after_headers(_: bytes, context: Any) -> Any:
        context.send_initial_metadata(HEADERS)
        context.abort(NOT_FOUND, "gone")

    @staticmethod
    def aborts_with_a_status(_: bytes, context: Any) -> Any:
        context.abort_with_status(Lost())

    @staticmethod
    def sends_trailers(request: bytes, context: Any) -> Any:
        context.set_trailing_metadata(TRAILERS)
        return request

    @staticmethod
    def answers_with_a_code(request: bytes, context: Any) -> Any:
        context.set_code(NOT_FOUND)
        context.set_details("gone")
        return request

    @staticmethod
    def says_a_code_and_nothing_else(_: bytes, context: Any) -> Any:
        context.set_code(NOT_FOUND)

    @staticmethod
    def says_nothing(_: bytes, __: Any) -> Any:
        return None

    @staticmethod
    def sends_headers(request: bytes, context: Any) -> Any:
        context.send_initial_metadata(HEADERS)
        return request

    @staticmethod
    def sends_headers_twice(request: bytes, context: Any) -> Any:
        context.send_initial_metadata(HEADERS)
        context.send_initial_metadata(HEADERS)
        return request

    @staticmethod
    def compresses(request: bytes, context: Any) -> Any:
        context.set_compression(grpc.Compression.Gzip)
        return request * 1000

    @staticmethod
    def cancels(request: bytes, context: Any) -> Any:
        context.cancel()
        return request

    @staticmethod
    def tells_what_it_knows(_: bytes, context: Any) -> Any:
        known = (sorted(context.auth_context()), context.peer_identities(), context.peer_identity_key())
        more = (context.is_active(), context.time_remaining() > 0, context.code(), context.details())
        return repr((known, more, context.trailing_metadata())).encode()

    @staticmethod
    def many_fails(_: bytes, __: Any) -> Any:
        raise ValueError("boom")

    @staticmethod
    def many_fails_late(_: bytes, __: Any) -> Iterator[Any]:
        yield b"1"
        raise ValueError("boom")

    @staticmethod
    def many_aborts_late(_: bytes, context: Any) -> Iterator[Any]:
        yield b"1"
        context.abort(NOT_FOUND, "gone")

    @staticmethod
    def many_says_a_code(_: bytes, context: Any) -> Iterator[Any]:
        yield b"1"
        context.set_code(NOT_FOUND)
        context.set_details("gone")

    @staticmethod
    def many_says_nothing(_: bytes, __: Any) -> Any:
        return iter(())

    @staticmethod
    def many_ends_with_none(_: bytes, __: Any) -> Iterator[Any]:
        yield b"1"
        yield None

    @staticmethod
    def many_returns_none(_: bytes, __: Any) -> Any:
        return None

    @staticmethod
    def many_returns_a_list(_: bytes, __: Any) -> Any:
        return [b"1", b"2"]


class Loop:
    """Handlers of event loops."""

    @staticmethod
    async def fails(_: bytes, __: Any) -> Any:
        raise ValueError("boom")

    @staticmethod
    async def aborts(_: bytes, context: Any) -> Any:
        await context.abort(NOT_FOUND, "gone", TRAILERS)

    @staticmethod
    async def aborts_after_headers(_: bytes, context: Any) -> Any:
        await context.send_initial_metadata(HEADERS)
        await context.abort(NOT_FOUND, "gone")

    @staticmethod
    async def aborts_with_a_status(_: bytes, context: Any) -> Any:
        await context.abort_with_status(Lost())

    @staticmethod
    async def sends_trailers(request: bytes, context: Any) -> Any:
        context.set_trailing_metadata(TRAILERS)
        return request

    @staticmethod
    async def answers_with_a_code(request: bytes, context: Any) -> Any:
        context.set_code(NOT_FOUND)
        context.set_details("gone")
        return request

    @staticmethod
    async def says_a_code_and_nothing_else(_: bytes, context: Any) -> Any:
        context.set_code(NOT_FOUND)

    @staticmethod
    async def says_nothing(_: bytes, __: Any) -> Any:
        return None

    @staticmethod
    async def sends_headers(request: bytes, context: Any) -> Any:
        await context.send_initial_metadata(HEADERS)
        return request

    @staticmethod
    async def sends_headers_twice(request: bytes, context: Any) -> Any:
        await context.send_initial_metadata(HEADERS)
        await context.send_initial_metadata(HEADERS)
        return request

    @staticmethod
    async def compresses(request: bytes, context: Any) -> Any:
        context.set_compression(grpc.Compression.Gzip)
        return request * 1000

    @staticmethod
    async def tells_what_it_knows(_: bytes, context: Any) -> Any:
        known = (sorted(context.auth_context()), context.peer_identities(), context.peer_identity_key())
        more = (context.done(), context.cancelled(), context.time_remaining() > 0, context.code(), context.details())
        return repr((known, more, context.trailing_metadata())).encode()

    @staticmethod
    async def many_fails(_: bytes, __: Any) -> AsyncIterator[Any]:
        raise ValueError("boom")
        yield b""

    @staticmethod
    async def many_fails_late(_: bytes, __: Any) -> AsyncIterator[Any]:
        yield b"1"
        raise ValueError("boom")

    @staticmethod
    async def many_aborts_late(_: bytes, context: Any) -> AsyncIterator[Any]:
        yield b"1"
        await context.abort(NOT_FOUND, "gone")

    @staticmethod
    async def many_says_a_code(_: bytes, context: Any) -> AsyncIterator[Any]:
        yield b"1"
        context.set_code(NOT_FOUND)
        context.set_details("gone")

    @staticmethod
    async def many_writes(_: bytes, context: Any) -> None:
        await context.write(b"1")
        await context.write(b"2")

    @staticmethod
    async def many_writes_and_aborts(_: bytes, context: Any) -> None:
        await context.write(b"1")
        await context.abort(NOT_FOUND, "gone")

    @staticmethod
    async def many_writes_nothing(_: bytes, __: Any) -> None:
        pass


def names(stack: type) -> list[str]:
    return [name for name in vars(stack) if not name.startswith("_")]


def handlers_of(stack: type) -> grpc.GenericRpcHandler:
    """Serve each of them twice: as it is, and with a serializer that takes nothing but bytes."""
    made: dict[str, Any] = {}
    for name in names(stack):
        behave = getattr(stack, name)
        make: Any = (
            grpc.unary_stream_rpc_method_handler if name.startswith("many") else grpc.unary_unary_rpc_method_handler
        )
        made[name] = make(behave)
        made[f"{name}_strictly"] = make(behave, bytes, _strict)
    return grpc.method_handlers_generic_handler("shop.Cart", made)


def _strict(message: Any) -> bytes:
    if not isinstance(message, bytes):
        raise TypeError("these are no bytes")
    return message
