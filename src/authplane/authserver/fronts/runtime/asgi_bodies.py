"""Reads an ASGI client's messages: the body, whole or in pieces, and the disconnect."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from authplane.core.values import dataclass
from authplane.runtime.child_processes import owned_tasks

T = TypeVar("T")

Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

ROOM: Final = 64 * 1024 * 1024
"""The total size of incomplete bodies, in bytes: without it every call could use the maximum."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Other incomplete bodies take all the space; this one was dropped."""


NO_ROOM: Final = NoRoom()


def whole_body(first: Message) -> bytes | None:
    """Return the body if it came in one piece, as most do; None if there is more."""
    if first["type"] != "http.request" or first.get("more_body", False):
        return None
    body: bytes = first.get("body", b"")
    return body


class Bodies:
    """Reads bodies that come in pieces, all of them within one limit."""

    def __init__(self, *, largest: int, room: int = ROOM) -> None:
        self._largest = largest
        self._room = room
        self._held = 0

    @property
    def held(self) -> int:
        """The number of bytes of incomplete bodies."""
        return self._held

    async def read(self, receive: Receive) -> bytes | NoRoom | None:
        """Read a whole body; None means that the client left. More than the largest size is not read."""
        first = await receive()
        body = whole_body(first)
        return await self.read_on(first, receive) if body is None else body

    async def read_on(self, event: Message, receive: Receive) -> bytes | NoRoom | None:
        """Read what follows the first event of a body, as `read` does."""
        chunks: list[bytes] = []
        size = 0
        try:
            while event["type"] == "http.request":
                chunk = event.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                self._held += len(chunk)
                if size > self._largest or not event.get("more_body", False):
                    return b"".join(chunks)
                if self._held > self._room:
                    return NO_ROOM
                event = await receive()
        finally:
            self._held -= size
        return None


async def unless_left(answering: Coroutine[None, None, T], receive: Receive) -> T | None:
    """Wait for an answer to a whole body as long as its client does; None means that the client left."""
    async with owned_tasks() as tasks:
        answer = tasks.create_task(answering)

        def listen() -> None:
            # Not cancelled when the answer is there: it belongs to pyvoy, which sets it when the call is over.
            asyncio.ensure_future(receive()).add_done_callback(heard)

        def heard(news: asyncio.Future[Message]) -> None:
            if answer.done() or news.cancelled() or news.exception() is not None:
                return
            if news.result()["type"] == "http.disconnect":
                answer.cancel()
            else:
                listen()

        listen()
        await asyncio.wait([answer])
    return None if answer.cancelled() else answer.result()
