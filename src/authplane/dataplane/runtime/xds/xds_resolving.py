"""Watches the resources of a Listener, and reports the resolved configuration."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

from authplane.dataplane.routing.resolver import Failed, Known, Resolution, Resource, Waiting
from authplane.dataplane.routing.resource_types import ResourceTypes
from authplane.xds.client.watch_events import Ambient, Changed, Event, Trouble
from authplane.xds.client.watch_events import Failed as Gone
from authplane.xds.client.watched_types import ResourceType
from authplane.xds.server.served_types import XdsName

T = TypeVar("T")

_log: Final = logging.getLogger("authplane.xds")


class Watching(Protocol):
    """A watch that can be ended."""

    def cancel(self) -> None:
        """End it."""


class Watcher(Protocol):
    """A client of xDS servers."""

    def watch(self, kind: ResourceType[Any], name: str, told: Callable[[Event[Any]], None]) -> Watching:
        """Tell what is known of a resource and all that changes."""


class Resolving(Generic[T]):
    """Follows references from one Listener. It publishes on the thread or the loop of the client."""

    def __init__(
        self,
        client: Watcher,
        types: ResourceTypes,
        resolve: Callable[[Known], Resolution[T]],
        publish: Callable[[T | Failed], None],
    ) -> None:
        self._client = client
        self._types = types
        self._resolve = resolve
        self._publish = publish
        self._known: dict[XdsName, Resource | Failed] = {}
        self._watches: dict[XdsName, Watching] = {}
        self._published: T | Failed | None = None
        self._ended = False
        # Watching on one thread may report on another at once.
        self._lock = threading.RLock()

    def settle(self) -> None:
        """Watch what is needed now and nothing else; report the result, if it is complete and has changed."""
        with self._lock:
            if not self._ended:
                self._settle()

    def _settle(self) -> None:
        resolution = self._resolve(self._known)
        for name in self._watches.keys() - resolution.watch:
            self._watches.pop(name).cancel()
            self._known.pop(name, None)
        for name in sorted(resolution.watch - self._watches.keys()):
            self._watch(name)
        outcome = resolution.outcome
        # The current configuration stays in force until the next one is complete.
        if not isinstance(outcome, Waiting) and outcome != self._published:
            self._published = outcome
            self._publish(outcome)

    def end(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._ended = True
            watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.cancel()

    def _watch(self, name: XdsName) -> None:
        kind = self._types.of(name[0])
        self._watches[name] = self._client.watch(kind, name[1], lambda event: self._told(name, event))

    def _told(self, name: XdsName, event: Event[Any]) -> None:
        with self._lock:
            if name in self._watches and self._takes(name, event):
                self._settle()

    def _takes(self, name: XdsName, event: Event[Any]) -> bool:
        """Record an event; tell whether it changes what is known."""
        match event:
            case Changed(value):
                self._known[name] = value
            case Gone(fault):
                self._known[name] = Failed(fault.message, missing=fault.trouble is Trouble.NOT_FOUND)
            case Ambient(fault):
                if fault is not None:
                    _log.warning("%s; the last good version stays in force", fault.message)
                return False
            case _:
                assert_never(event)
        return True
