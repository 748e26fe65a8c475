"""Channels that are kept: equal keys share one, updates keep it, and its last call may end on it."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable
from math import inf
from time import monotonic
from typing import Any, Final

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Metadata
from authplane.dataplane.runtime.connections.token_source import TokenSource

_MOST_METHODS: Final = 1024
"""How many methods of a line are remembered; a program that names ever new ones costs time, and no room."""

_NOTHING: Final[tuple[object, None]] = (object(), None)


class Opener(ABC):
    """Knows how to open the channel of a key."""

    metadata: Metadata = ()
    """What goes with every call."""
    refresh: float | None = None
    """How often, in seconds, to look whether the channel must be replaced; None is never."""
    tokens: tuple[TokenSource, ...] = ()
    """The token files that the credentials of the channel have in them."""

    @abstractmethod
    def open(self) -> grpc.Channel:
        """Open a channel; raises `CredentialsUnusableError`."""

    @abstractmethod
    async def open_aio(self) -> grpc.aio.Channel:
        """Open an asynchronous channel; raises `CredentialsUnusableError`."""

    def changed(self) -> bool:
        """Tell whether a channel opened now would be another one than the last."""
        return False


class Line:
    """A channel that is open, and how many calls are under way on it."""

    __slots__ = ("_made", "busy", "channel", "kept", "metadata", "tokens", "watch")

    def __init__(self, channel: Any, opener: Opener) -> None:
        self.channel = channel
        self.metadata = opener.metadata
        self.tokens = opener.tokens
        self.busy = 0
        self.kept = True
        self.watch: Any = None
        """For whoever looks after the state of the channel."""
        self._made: dict[Hashable, Any] = {}

    def multi(self, kind: str, method: str, serialize: Any = None, deserialize: Any = None) -> Any:
        """Return what makes calls of a method; ``kind`` is such as ``unary_unary``."""
        key = (kind, method, serialize, deserialize)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_METHODS:
                self._made.clear()
            found = self._made[key] = getattr(self.channel, kind)(method, serialize, deserialize)
        return found


class _Way:
    """How a key is reached."""

    __slots__ = ("line", "look_at", "opener", "opening")

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.line: Line | None = None
        self.opening: asyncio.Lock | None = None
        self.look_at = inf if opener.refresh is None else monotonic() + opener.refresh

    def is_due(self) -> bool:
        """Tell whether it is time to look at the channel again."""
        now = monotonic()
        due = self.look_at <= now
        if due and self.opener.refresh is not None:
            self.look_at = now + self.opener.refresh
        return due


class _Ways:
    """The ways that are in use. A line that nothing keeps is closed when its last call has ended."""

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        self._opener_of = opener_of
        self._kept: frozenset[Any] = frozenset()
        self._ways: dict[Any, _Way] = {}
        self._last: tuple[Any, _Way | None] = _NOTHING
        """A key that is kept, and its way: it is asked for again and again, and to hash keys takes many steps."""
        self.closed = False

    def __len__(self) -> int:
        return sum(way.line is not None for way in self._ways.values())

    def _known(self, key: Any) -> _Way | None:
        last, way = self._last
        if last is key:
            return way
        way = self._ways.get(key)
        if way is not None and key in self._kept:
            self._last = (key, way)
        return way

    def _way(self, key: Any) -> _Way:
        way = self._known(key)
        if way is None:
            way = self._ways[key] = _Way(self._opener_of(key))
        return way

    def _replace_kept(self, keys: frozenset[Any]) -> list[Line]:
        """Keep these and no others; returns the lines to close now."""
        self._kept = keys
        self._last = _NOTHING
        dropped = [key for key in self._ways if key not in keys]
        return [line for key in dropped if (line := _let_go(self._ways.pop(key))) is not None]

    def _released(self, key: Any, line: Line) -> Line | None:
        """End one use of a line; returns it if it is to be closed."""
        line.busy -= 1
        if line.busy:
            return None
        if line.kept and key is not self._last[0] and key not in self._kept and not self.closed:
            # Nothing that is known names it: it was for this call.
            way = self._ways.get(key)
            if way is not None and way.line is line:
                del self._ways[key]
            line.kept = False
        return None if line.kept else line

    def _all_lines(self) -> list[Line]:
        self.closed = True
        self._last = _NOTHING
        lines = [way.line for way in self._ways.values() if way.line is not None]
        self._ways.clear()
        return lines


class Lines(_Ways):
    """Lines of threads."""

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        super().__init__(opener_of)
        self._lock = threading.Lock()

    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the lines of these keys once they are open, and close others when they are no longer busy."""
        with self._lock:
            gone = self._replace_kept(keys)
        _close_all(gone)

    def take(self, key: Any) -> Line | None:
        """Begin to use the line of a key; None if all is closed. Raises `CredentialsUnusableError`."""
        gone = None
        with self._lock:
            if self.closed:
                return None
            way = self._way(key)
            if way.line is not None and way.is_due() and way.opener.changed():
                gone = _let_go(way)
            if way.line is None:
                way.line = Line(way.opener.open(), way.opener)
            line = way.line
            line.busy += 1
        if gone is not None:
            gone.channel.close()
        return line

    def release(self, key: Any, line: Line) -> None:
        """End one use of a line."""
        with self._lock:
            gone = self._released(key, line)
        if gone is not None:
            gone.channel.close()

    def close(self) -> None:
        """Close everything; calls that are under way are cancelled."""
        with self._lock:
            lines = self._all_lines()
        _close_all(lines)


class AioLines(_Ways):
    """Lines of an event loop."""

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        super().__init__(opener_of)
        self._closing: set[asyncio.Future[None]] = set()

    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the lines of these keys once they are open, and close others when they are no longer busy."""
        self._close_soon(self._replace_kept(keys))

    def take_now(self, key: Any) -> Line | None:
        """Begin to use the line of a key if it is open, and it is not time to look at it again."""
        way = self._known(key)
        if way is None or way.line is None or way.look_at <= monotonic():
            return None
        way.line.busy += 1
        return way.line

    async def take(self, key: Any) -> Line | None:
        """Begin to use the line of a key; None if all is closed. Raises `CredentialsUnusableError`."""
        line = self.take_now(key)
        if line is not None or self.closed:
            return line
        way = self._way(key)
        way.opening = way.opening or asyncio.Lock()
        async with way.opening:
            if way.line is not None and way.is_due() and await asyncio.to_thread(way.opener.changed):
                self._close_soon([_let_go(way)])
            if way.line is None:
                way.line = Line(await way.opener.open_aio(), way.opener)
            line = way.line
        if self.closed:
            self._close_soon([line])
            return None
        line.busy += 1
        if self._ways.get(key) is not way:
            # While it was opened it was given up; or somebody has opened another one.
            line.kept = False
        return line

    def release(self, key: Any, line: Line) -> None:
        """End one use of a line."""
        gone = self._released(key, line)
        if gone is not None:
            self._close_soon([gone])

    async def close(self) -> None:
        """Close everything; calls that are under way are cancelled."""
        self._close_soon(self._all_lines())
        if self._closing:
            await asyncio.wait(self._closing)

    def _close_soon(self, lines: Iterable[Line | None]) -> None:
        for line in lines:
            if line is not None:
                task = asyncio.ensure_future(_quietly(line.channel.close()))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


def _let_go(way: _Way) -> Line | None:
    """Give up the line of a way; returns it if it can be closed now."""
    line, way.line = way.line, None
    if line is None:
        return None
    line.kept = False
    return None if line.busy else line


def _close_all(lines: Iterable[Line]) -> None:
    for line in lines:
        line.channel.close()


async def _quietly(closing: Awaitable[None]) -> None:
    with contextlib.suppress(grpc.aio.UsageError, asyncio.CancelledError):
        await closing
