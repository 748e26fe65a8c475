"""Contexts of calls whose metadata filters have changed, as handlers see them.

There are two classes: on an event loop the same methods are coroutines, and the context reads and writes messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NoReturn

import grpc

from authplane.dataplane.filters.calls import Metadata
from authplane.dataplane.runtime.calls.call_gate import Metadatum, ResponseEdits


class EditedContext(grpc.ServicerContext):
    """The context of a call on a thread."""

    def __init__(self, context: Any, metadata: Metadata, edits: ResponseEdits | None) -> None:
        self._context = context
        self._metadata = tuple(Metadatum(*each) for each in metadata)
        self._edits = edits

    def __getattr__(self, name: str) -> Any:
        # What grpcio has beyond its documented interface.
        return getattr(self._context, name)

    def invocation_metadata(self) -> Any:
        """Return the metadata as filters have left it."""
        return self._metadata

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send what the handler says, with the changes of filters."""
        edits, self._edits = self._edits, None
        if edits is not None:
            initial_metadata = edits.apply(tuple(initial_metadata or ()))
        self._context.send_initial_metadata(initial_metadata)

    def respond(self) -> None:
        """See to it that a response which is about to begin has the changes of filters."""
        if self._edits is not None:
            self.send_initial_metadata(())

    def is_active(self) -> bool:
        """Pass on."""
        return bool(self._context.is_active())

    def time_remaining(self) -> float:
        """Pass on."""
        return self._context.time_remaining()  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Pass on."""
        return self._context.cancel()  # type: ignore[no-any-return]

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Pass on."""
        return self._context.add_callback(callback)  # type: ignore[no-any-return]

    def peer(self) -> str:
        """Pass on."""
        return self._context.peer()  # type: ignore[no-any-return]

    def peer_identities(self) -> Iterable[bytes] | None:
        """Pass on."""
        return self._context.peer_identities()  # type: ignore[no-any-return]

    def peer_identity_key(self) -> str | None:
        """Pass on."""
        return self._context.peer_identity_key()  # type: ignore[no-any-return]

    def auth_context(self) -> Mapping[str, Any]:
        """Pass on."""
        return self._context.auth_context()  # type: ignore[no-any-return]

    def set_compression(self, compression: grpc.Compression) -> None:
        """Pass on."""
        self._context.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        """Pass on."""
        self._context.disable_next_message_compression()

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Pass on."""
        self._context.set_trailing_metadata(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """Pass on."""
        return self._context.trailing_metadata()

    def abort(self, code: grpc.StatusCode, details: str, *more: Any) -> NoReturn:
        """Pass on."""
        self._context.abort(code, details, *more)
        raise AssertionError

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """Pass on."""
        self._context.abort_with_status(status)
        raise AssertionError

    def set_code(self, code: grpc.StatusCode) -> None:
        """Pass on."""
        self._context.set_code(code)

    def code(self) -> Any:
        """Pass on."""
        return self._context.code()

    def set_details(self, details: str) -> None:
        """Pass on."""
        self._context.set_details(details)

    def details(self) -> Any:
        """Pass on."""
        return self._context.details()


class HandlerEndedError(Exception):
    """A handler has ended its call."""


class ThreadContext(EditedContext):
    """The context of a call on an event loop, for a handler that runs on a thread."""

    def __init__(self, context: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context, context.invocation_metadata(), None)
        self._loop = loop
        self._callbacks: list[Callable[[], None]] = []
        # Ending the call at once, while a response is being sent, makes grpcio hang.
        self._end: tuple[Any, ...] | None = None

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send it on the event loop."""
        self._on_loop(self._context.send_initial_metadata(initial_metadata))

    def abort(self, code: grpc.StatusCode, details: str = "", *more: Any) -> NoReturn:
        """End the call, after what the handler has said before."""
        self._end = (code, details, *more)
        raise HandlerEndedError

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call, after what the handler has said before."""
        self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    async def conclude(self) -> None:
        """End the call if the handler has said so."""
        if self._end is not None:
            await self._context.abort(*self._end)

    def is_active(self) -> bool:
        """Tell whether the client waits for an answer."""
        return not self._context.done()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something called when the handler has ended."""
        self._callbacks.append(callback)
        return True

    def call_back(self) -> None:
        """Call the registered callbacks."""
        for each in self._callbacks:
            each()

    def _on_loop(self, doing: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(doing, self._loop).result()


class EditedAioContext:
    """The context of a call on an event loop.

    It may have serializers of its own: then the messages that grpcio passes are bytes.
    """

    def __init__(
        self,
        context: Any,
        metadata: Metadata,
        edits: ResponseEdits | None,
        *,
        deserialize: Callable[[bytes], Any] | None = None,
        serialize: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._context = context
        self._metadata = tuple(Metadatum(*each) for each in metadata)
        self.edits = edits
        """What is still to be changed in the response."""
        self._deserialize = deserialize
        self._serialize = serialize

    def __getattr__(self, name: str) -> Any:
        # Everything that filters have nothing to do with.
        return getattr(self._context, name)

    def invocation_metadata(self) -> Any:
        """Return the metadata as filters have left it."""
        return self._metadata

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send what the handler says, with the changes of filters."""
        edits, self.edits = self.edits, None
        if edits is not None:
            initial_metadata = edits.apply(tuple(initial_metadata or ()))
        await self._context.send_initial_metadata(initial_metadata)

    async def respond(self) -> None:
        """See to it that a response which is about to begin has the changes of filters."""
        if self.edits is not None:
            await self.send_initial_metadata(())

    async def read(self) -> Any:
        """Read a message."""
        message = await self._context.read()
        return message if self._deserialize is None or not isinstance(message, bytes) else self._deserialize(message)

    async def write(self, message: Any) -> None:
        """Write a message."""
        if self.edits is not None:
            await self.send_initial_metadata(())
        await self._context.write(message if self._serialize is None else self._serialize(message))
