"""Shared channels: equal keys share one, updates keep it, and it stays open until its last call has ended."""

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
"""How many methods of a channel are remembered; a program that names ever new ones costs time, and no room."""

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


class PooledChannel:
    """An open channel, and how many calls are in progress on it."""

    __slots__ = ("_made", "busy", "channel", "kept", "metadata", "tokens", "watch")

    def __init__(self, channel: Any, opener: Opener) -> None:
        self.channel = channel
        self.metadata = opener.metadata
        self.tokens = opener.tokens
        self.busy = 0
        self.kept = True
        self.watch: _Watch | None = None
        """The connectivity of a thread channel, after the first request for it."""
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


class _Watch:
    """Keeps the state of a channel of threads, which tells it only when it changes."""

    state: grpc.ChannelConnectivity | None = None

    def __call__(self, state: grpc.ChannelConnectivity) -> None:
        self.state = state


class _Entry:
    """How the channel of a key is opened, and the one that is open."""

    __slots__ = ("look_at", "opener", "opening", "pooled")

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.pooled: PooledChannel | None = None
        self.opening: asyncio.Lock | None = None
        self.look_at = inf if opener.refresh is None else monotonic() + opener.refresh

    def is_due(self) -> bool:
        """Tell whether it is time to look at the channel again."""
        now = monotonic()
        due = self.look_at <= now
        if due and self.opener.refresh is not None:
            self.look_at = now + self.opener.refresh
        return due


class ChannelPool(ABC):
    """The channels in use. A channel that nothing keeps is closed when its last call has ended.

    This class decides what happens to a channel. The pools for threads and for an event loop implement ``take``: a
    thread keeps the pool's lock while it opens a channel; on a loop, opening takes a moment in which other tasks run.
    """

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        self._opener_of = opener_of
        self._kept: frozenset[Any] = frozenset()
        self._entries: dict[Any, _Entry] = {}
        self._last: tuple[Any, _Entry | None] = _NOTHING
        """A kept key and its entry: calls look it up again and again, and hashing a key takes many steps."""
        self.closed = False

    def __len__(self) -> int:
        return sum(entry.pooled is not None for entry in self._entries.values())

    def take_now(self, key: Any) -> PooledChannel | None:
        """Begin to use the channel of a key if it is open, and it is not time to look at it again."""
        entry = self._known(key)
        if entry is None or entry.pooled is None or entry.look_at <= monotonic():
            return None
        entry.pooled.busy += 1
        return entry.pooled

    @abstractmethod
    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the channels of these keys once they are open, and close others when they are no longer busy."""

    @abstractmethod
    def release(self, key: Any, pooled: PooledChannel) -> None:
        """End one use of a channel."""

    @abstractmethod
    def is_broken(self, pooled: PooledChannel) -> bool:
        """Tell whether the last attempt to connect failed; one that is idle begins to connect."""

    def _known(self, key: Any) -> _Entry | None:
        last, entry = self._last
        if last is key:
            return entry
        entry = self._entries.get(key)
        if entry is not None and key in self._kept:
            self._last = (key, entry)
        return entry

    def _entry(self, key: Any) -> _Entry:
        entry = self._known(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self._opener_of(key))
        return entry

    def _replace_kept(self, keys: frozenset[Any]) -> list[PooledChannel]:
        """Keep these and no others; returns the channels to close now."""
        self._kept = keys
        self._last = _NOTHING
        dropped = [key for key in self._entries if key not in keys]
        return [pooled for key in dropped if (pooled := _let_go(self._entries.pop(key))) is not None]

    def _released(self, key: Any, pooled: PooledChannel) -> PooledChannel | None:
        """End one use of a channel; returns it if it is to be closed."""
        pooled.busy -= 1
        if pooled.busy:
            return None
        if pooled.kept and key is not self._last[0] and key not in self._kept and not self.closed:
            # Nothing that is known names it: it was for this call.
            entry = self._entries.get(key)
            if entry is not None and entry.pooled is pooled:
                del self._entries[key]
            pooled.kept = False
        return None if pooled.kept else pooled

    def _all_channels(self) -> list[PooledChannel]:
        self.closed = True
        self._last = _NOTHING
        channels = [entry.pooled for entry in self._entries.values() if entry.pooled is not None]
        self._entries.clear()
        return channels


class ThreadChannelPool(ChannelPool):
    """The channels of threads."""

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        super().__init__(opener_of)
        self._lock = threading.Lock()

    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the channels of these keys once they are open, and close others when they are no longer busy."""
        with self._lock:
            gone = self._replace_kept(keys)
        _close_all(gone)

    def take_now(self, key: Any) -> PooledChannel | None:
        """Begin to use the channel of a key if it is open, and it is not time to look at it again."""
        with self._lock:
            return super().take_now(key)

    def take(self, key: Any) -> PooledChannel | None:
        """Begin to use the channel of a key; None if all is closed. Raises `CredentialsUnusableError`."""
        gone = None
        with self._lock:
            if self.closed:
                return None
            entry = self._entry(key)
            if entry.pooled is not None and entry.is_due() and entry.opener.changed():
                gone = _let_go(entry)
            if entry.pooled is None:
                entry.pooled = PooledChannel(entry.opener.open(), entry.opener)
            pooled = entry.pooled
            pooled.busy += 1
        if gone is not None:
            gone.channel.close()
        return pooled

    def release(self, key: Any, pooled: PooledChannel) -> None:
        """End one use of a channel."""
        with self._lock:
            gone = self._released(key, pooled)
        if gone is not None:
            gone.channel.close()

    def is_broken(self, pooled: PooledChannel) -> bool:
        """Tell whether the last attempt to connect failed; one that is idle begins to connect."""
        if pooled.watch is None:
            pooled.watch = _Watch()
            pooled.channel.subscribe(pooled.watch, try_to_connect=True)
        return pooled.watch.state is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def close(self) -> None:
        """Close everything; calls in progress are cancelled."""
        with self._lock:
            channels = self._all_channels()
        _close_all(channels)


class AioChannelPool(ChannelPool):
    """The channels of an event loop."""

    def __init__(self, opener_of: Callable[[Any], Opener]) -> None:
        super().__init__(opener_of)
        self._closing: set[asyncio.Future[None]] = set()

    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the channels of these keys once they are open, and close others when they are no longer busy."""
        self._close_soon(self._replace_kept(keys))

    async def take(self, key: Any) -> PooledChannel | None:
        """Begin to use the channel of a key; None if all is closed. Raises `CredentialsUnusableError`."""
        pooled = self.take_now(key)
        if pooled is not None or self.closed:
            return pooled
        entry = self._entry(key)
        entry.opening = entry.opening or asyncio.Lock()
        async with entry.opening:
            if entry.pooled is not None and entry.is_due() and await asyncio.to_thread(entry.opener.changed):
                self._close_soon([_let_go(entry)])
            if entry.pooled is None:
                entry.pooled = PooledChannel(await entry.opener.open_aio(), entry.opener)
            pooled = entry.pooled
        if self.closed:
            self._close_soon([pooled])
            return None
        pooled.busy += 1
        if self._entries.get(key) is not entry:
            # While this channel was opened, its key was dropped, or another thread opened one.
            pooled.kept = False
        return pooled

    def release(self, key: Any, pooled: PooledChannel) -> None:
        """End one use of a channel."""
        gone = self._released(key, pooled)
        if gone is not None:
            self._close_soon([gone])

    def is_broken(self, pooled: PooledChannel) -> bool:
        """Tell whether the last attempt to connect failed; one that is idle begins to connect."""
        state = pooled.channel.get_state(try_to_connect=True)
        return bool(state is grpc.ChannelConnectivity.TRANSIENT_FAILURE)

    async def close(self) -> None:
        """Close everything; calls in progress are cancelled."""
        self._close_soon(self._all_channels())
        if self._closing:
            await asyncio.wait(self._closing)

    def _close_soon(self, channels: Iterable[PooledChannel | None]) -> None:
        for pooled in channels:
            if pooled is not None:
                task = asyncio.ensure_future(_quietly(pooled.channel.close()))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


def _let_go(entry: _Entry) -> PooledChannel | None:
    """Give up the channel of an entry; returns it if it can be closed now."""
    pooled, entry.pooled = entry.pooled, None
    if pooled is None:
        return None
    pooled.kept = False
    return None if pooled.busy else pooled


def _close_all(channels: Iterable[PooledChannel]) -> None:
    for pooled in channels:
        pooled.channel.close()


async def _quietly(closing: Awaitable[None]) -> None:
    with contextlib.suppress(grpc.aio.UsageError, asyncio.CancelledError):
        await closing
