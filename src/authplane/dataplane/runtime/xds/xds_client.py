"""Watches xDS resources: on the event loop of a program that has one, or on a thread of its own."""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from random import SystemRandom
from typing import Any, Final, Self, TypeVar, assert_never, cast

from authplane.core.problems import Problem, printable
from authplane.dataplane.runtime.connections.dialing import Dialer
from authplane.dataplane.runtime.xds.xds_stream import AdsStream, Listeners, StreamLimits
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.xds.bootstrap.credentials import ServiceCredentials
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, XdsServer
from authplane.xds.client.client_messages import Connect, Disconnect, Effect, Link, Notify, Send
from authplane.xds.client.resource_cache import ClientDump
from authplane.xds.client.session import ClientSession
from authplane.xds.client.watch_events import Event
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source

T = TypeVar("T")

SERVERS: Final = "#server"
"""What a client is for that a server has."""

_random: Final = SystemRandom()
_log: Final = logging.getLogger("authplane.xds")
_DEFAULT_LIMITS: Final = StreamLimits()
_PATIENCE: Final = 5.0
"""Seconds that the thread of a client has for an answer or for its end."""


class Watch:
    """One watcher of one resource."""

    def __init__(self, told: Callable[[Event[Any]], None], leave: Callable[[], None]) -> None:
        self._told = told
        self._leave = leave
        self._ended = False

    def tell(self, event: Event[Any]) -> None:
        """Pass an event to the callback, unless the watch has ended; a callback that raises does not affect others."""
        if self._ended:
            return
        try:
            self._told(event)
        except Exception as error:  # noqa: BLE001 (other watchers need to hear of other things)
            _log.error("resource callback failed: %s", place_of(error))

    def cancel(self) -> None:
        """End the watch: the callback receives no more events. A second call does nothing."""
        if not self._ended:
            self._ended = True
            self._leave()


class XdsClient:
    """Watches resources while `run` runs. All of it belongs to one event loop; see `XdsClientThread` for others."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        types: Iterable[ResourceType[Any]],
        *,
        scope: str = SERVERS,
        limits: StreamLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._bootstrap = bootstrap
        self._scope = scope
        self._limits = limits
        self._session = ClientSession(bootstrap, [replace(kind, decode=_guarded(kind)) for kind in types])
        self._agent_version = _own_version()
        self._numbers = count(1)
        self._watches: dict[int, Watch] = {}
        self._dialers: dict[XdsServer, Dialer] = {}
        self._streams: dict[Link, tuple[AdsStream, asyncio.Task[None]]] = {}
        self._effects: deque[Effect] = deque()
        self._wake = asyncio.Event()
        self._stopping = False

    def watch(self, kind: ResourceType[T], name: str, told: Callable[[Event[T]], None]) -> Watch:
        """Pass what is known of a resource and all changes to ``told``, soon and on the event loop, until cancelled.

        Several watches of one name share one subscription; it ends with the last of them.
        """
        number = next(self._numbers)
        watch = self._watches[number] = Watch(cast("Callable[[Event[Any]], None]", told), lambda: self._leave(number))
        self._put(self._session.watch(kind.type_url, name, number))
        return watch

    async def events(self, kind: ResourceType[T], name: str) -> AsyncGenerator[Event[T]]:
        """Watch as an iterator; close it to end the watch."""
        queue: asyncio.Queue[Event[T]] = asyncio.Queue()
        watch = self.watch(kind, name, queue.put_nowait)
        try:
            while True:
                yield await queue.get()
        finally:
            watch.cancel()

    def dump(self) -> ClientDump:
        """Return what is known of every watched resource."""
        epoch = time.time() - asyncio.get_running_loop().time()
        return ClientDump(node=self._bootstrap.node, scope=self._scope, resources=self._session.dump(), epoch=epoch)

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Talk to the servers until stopped; then no connection and no task is left."""
        async with owned_tasks() as tasks:
            while not self._stopping:
                await self._sleep()
                self._wake.clear()
                self._effects += self._session.elapsed(_now())
                self._perform(tasks)
                self._effects += self._session.flush()
                self._perform(tasks)
            for _, task in self._streams.values():
                task.cancel()

    async def _sleep(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._session.due()):
                await self._wake.wait()

    def _leave(self, number: int) -> None:
        self._watches.pop(number, None)
        self._put(self._session.unwatch(number))

    def _put(self, effects: Iterable[Effect]) -> None:
        self._effects += effects
        self._wake.set()

    def _perform(self, tasks: asyncio.TaskGroup) -> None:
        # Watchers may watch more: that comes after what is here already.
        while self._effects:
            effect = self._effects.popleft()
            match effect:
                case Connect(link):
                    self._connect(link, tasks)
                case Disconnect(link):
                    if link in self._streams:
                        self._streams[link][1].cancel()
                case Send(link, request):
                    if request.error is not None:
                        _log.warning("rejected response of type %s: %s", request.type_url, printable(request.error))
                    if link in self._streams:
                        self._streams[link][0].send(request)
                case Notify(watcher, event):
                    watch = self._watches.get(watcher)
                    if watch is not None:
                        watch.tell(event)
                case _:
                    assert_never(effect)

    def _connect(self, link: Link, tasks: asyncio.TaskGroup) -> None:
        session = self._session
        listeners = Listeners(
            opened=lambda: self._put(session.connected(link, _now())),
            sent=lambda request: self._put(session.sent(link, request, _now())),
            received=lambda response: self._put(session.received(link, response, _now())),
        )
        server = link.server
        if server not in self._dialers:
            credentials = ServiceCredentials(channel=server.channel_creds, calls=server.call_creds)
            self._dialers[server] = Dialer(server.uri, credentials)
        stream = AdsStream(self._dialers[server], listeners, self._limits, agent_version=self._agent_version)
        self._streams[link] = (stream, tasks.create_task(self._talk(link, stream)))

    async def _talk(self, link: Link, stream: AdsStream) -> None:
        try:
            why = await stream.run()
        except Exception as error:  # noqa: BLE001 (configuration must go on to arrive)
            why = f"internal error: {place_of(error)}"
        finally:
            del self._streams[link]
        _log.info("stream to %s ended: %s", link.server.uri, why)
        self._put(self._session.ended(link, why, _now(), _random.random()))


class XdsClientThread:
    """A client with a thread and an event loop of its own, which any thread may use until it is closed."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        types: Iterable[ResourceType[Any]],
        *,
        scope: str = SERVERS,
        limits: StreamLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._made: Future[tuple[asyncio.AbstractEventLoop, XdsClient]] = Future()

        def build() -> XdsClient:
            return XdsClient(bootstrap, types, scope=scope, limits=limits)

        # A daemon: a program that forgets to close it can still end.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(build)), name="xds client", daemon=True)
        self._thread.start()
        self._loop, self._client = self._made.result(_PATIENCE)

    def watch(self, kind: ResourceType[T], name: str, told: Callable[[Event[T]], None]) -> Watch:
        """Watch as `XdsClient.watch` does; ``told`` is called on the client's thread and must be quick.

        After the watch is cancelled, only a call that has already started may still reach ``told``.
        """
        inner: list[Watch] = []

        def begin() -> None:
            inner.append(self._client.watch(kind, name, watch.tell))

        def end() -> None:
            for each in inner:
                each.cancel()

        watch = Watch(cast("Callable[[Event[Any]], None]", told), lambda: self._soon(end))
        self._soon(begin)
        return watch

    def dump(self) -> ClientDump:
        """Return what is known of every watched resource; raises `TimeoutError` if the client is closed."""
        answer: Future[ClientDump] = Future()
        self._soon(lambda: answer.set_result(self._client.dump()))
        return answer.result(_PATIENCE if self._thread.is_alive() else 0)

    def close(self) -> None:
        """End all connections and the thread. From the thread itself it does not wait for that."""
        self._soon(self._client.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _soon(self, act: Callable[[], None]) -> None:
        # A loop that is closed has nothing left to do.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    async def _main(self, build: Callable[[], XdsClient]) -> None:
        try:
            client = build()
        except Exception as error:  # noqa: BLE001 (it is raised where the client is made)
            self._made.set_exception(error)
            return
        self._made.set_result((asyncio.get_running_loop(), client))
        await client.run()


def _guarded(kind: ResourceType[T]) -> Callable[[bytes, Source], Decoded[T] | Invalid]:
    """Refuse a resource whose decoder fails: filters that users register take part in it."""

    def decode(body: bytes, source: Source) -> Decoded[T] | Invalid:
        try:
            return kind.decode(body, source)
        except Exception as error:  # noqa: BLE001 (one resource must not end the configuration of all)
            _log.error("cannot parse a resource of type %s: %s", kind.type_url, place_of(error))
            return Invalid(
                name=None,
                problems=(
                    Problem(
                        (),
                        "Internal",
                        "Internal error while reading the resource. Report this with the log of authplane.xds.",
                    ),
                ),
            )

    return decode


def _own_version() -> str:
    try:
        return version("authplane")
    except PackageNotFoundError:
        return ""


def _now() -> float:
    return asyncio.get_running_loop().time()
