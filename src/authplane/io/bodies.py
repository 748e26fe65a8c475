"""Bodies of requests, as an ASGI application gets them: most in one piece, some bit by bit."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

ROOM: Final = 64 * 1024 * 1024
"""For all bodies that are not complete yet, in bytes: without it every call could hold as much as one may have."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Other bodies that are not complete take all the room; this one was given up."""


NO_ROOM: Final = NoRoom()


def whole_body(first: Message) -> bytes | None:
    """Return the body if it came in one piece, as most do; None means that there is more to it."""
    if first["type"] != "http.request" or first.get("more_body", False):
        return None
    body: bytes = first.get("body", b"")
    return body


class Bodies:
    """Reads bodies that come bit by bit, all of them within one room."""

    def __init__(self, *, largest: int, room: int = ROOM) -> None:
        self._largest = largest
        self._room = room
        self._held = 0

    @property
    def held(self) -> int:
        """How many bytes are there of bodies that are not complete."""
        return self._held

    async def read(self, receive: Receive) -> bytes | NoRoom | None:
        """Read a whole body; None means that the client left, and more than the largest is not waited for."""
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
