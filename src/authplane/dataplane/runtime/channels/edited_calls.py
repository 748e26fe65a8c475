"""Calls whose responses filters change, as clients see them.

There are two classes: grpcio's calls have other methods with threads than on event loops, and those of loops must be
subclasses of its own.
"""

from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc
import grpc.aio

from authplane.dataplane.runtime.calls.call_gate import ResponseEdits


class EditedCall:
    """A call of a thread."""

    def __init__(self, call: Any, edits: ResponseEdits) -> None:
        self._call = call
        self._edits = edits

    def __getattr__(self, name: str) -> Any:
        # Everything that filters have nothing to do with.
        return getattr(self._call, name)

    def initial_metadata(self) -> Any:
        """Return what the server sent, with the changes of filters."""
        received = tuple(self._call.initial_metadata() or ())
        failed = not self._call.is_active() and self._call.code() is not grpc.StatusCode.OK
        return self._edits.shown(received, failed=failed)

    def __iter__(self) -> "EditedCall":
        return self

    def __next__(self) -> Any:
        return next(self._call)


# To callers it is one of grpcio's.
grpc.Call.register(EditedCall)
grpc.Future.register(EditedCall)


class EditedAioCall(
    grpc.aio.UnaryUnaryCall[Any, Any],
    grpc.aio.UnaryStreamCall[Any, Any],
    grpc.aio.StreamUnaryCall[Any, Any],
    grpc.aio.StreamStreamCall[Any, Any],
):
    """A call of an event loop, of any kind."""

    _channel = None
    """When a channel is closed, grpcio looks at this to find its calls; this one ends with the call in it."""

    def __init__(self, call: Any, edits: ResponseEdits) -> None:
        self._call = call
        self._edits = edits

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return what the server sent, with the changes of filters."""
        received = tuple(await self._call.initial_metadata() or ())
        failed = self._call.done() and await self._call.code() is not grpc.StatusCode.OK
        return grpc.aio.Metadata(*self._edits.shown(received, failed=failed))

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Pass on."""
        return await self._call.trailing_metadata()  # type: ignore[no-any-return]

    async def code(self) -> grpc.StatusCode:
        """Pass on."""
        return await self._call.code()  # type: ignore[no-any-return]

    async def details(self) -> str:
        """Pass on."""
        return await self._call.details()  # type: ignore[no-any-return]

    async def wait_for_connection(self) -> None:
        """Pass on."""
        await self._call.wait_for_connection()

    def cancelled(self) -> bool:
        """Pass on."""
        return bool(self._call.cancelled())

    def done(self) -> bool:
        """Pass on."""
        return bool(self._call.done())

    def time_remaining(self) -> float | None:
        """Pass on."""
        return self._call.time_remaining()  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Pass on."""
        return bool(self._call.cancel())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Pass on."""
        self._call.add_done_callback(callback)

    def __await__(self) -> Generator[None, None, Any]:
        return self._call.__await__()  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._call.__aiter__()  # type: ignore[no-any-return]

    async def read(self) -> Any:
        """Pass on."""
        return await self._call.read()

    async def write(self, request: Any) -> None:
        """Pass on."""
        await self._call.write(request)

    async def done_writing(self) -> None:
        """Pass on."""
        await self._call.done_writing()
