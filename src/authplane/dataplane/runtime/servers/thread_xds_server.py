"""A server with threads that xDS configures; `xds_server` decides what it does."""

import threading
from collections.abc import Callable
from typing import assert_never

import grpc

from authplane.dataplane.routing.resolver import Failed, ServerConfiguration
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.drivers import drive
from authplane.dataplane.runtime.connections.side_channels import SideChannels
from authplane.dataplane.runtime.servers.registered_handlers import Registered
from authplane.dataplane.runtime.servers.xds_ports import Port
from authplane.dataplane.runtime.servers.xds_server import (
    ConfiguredServer,
    DiscardServer,
    DrainServer,
    StartServer,
    Step,
    XdsSettings,
)
from authplane.dataplane.runtime.xds.xds_client import XdsClientThread


class XdsServer(ConfiguredServer[grpc.Server], grpc.Server):
    """Listens where and as long as its Listeners say so; updates come on the thread of its client."""

    def __init__(
        self, settings: XdsSettings, make: Callable[[Gate], grpc.Server], handlers: Registered, side: SideChannels
    ) -> None:
        super().__init__(settings, make, handlers, side)
        self._side = side
        self._old: list[tuple[grpc.Server, threading.Event]] = []
        self._client: XdsClientThread | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._ended = threading.Event()

    def start(self) -> None:
        """Start to watch the Listeners. The server accepts connections as soon as they arrive."""
        self._require_unstarted("Cannot start already-started server!")
        self._client = XdsClientThread(self._settings.bootstrap, self._settings.watched)
        self._addresses.watch(self._client, self._apply)

    def stop(self, grace: float | None) -> threading.Event:
        """Accept no more calls; those in progress have ``grace`` seconds. Returns an event that is set when all ended.

        It may be called again, with less time.
        """
        first, self._stopping = not self._stopping, True
        self._addresses.watch_no_more()
        if self._client is not None:
            self._client.close()
        with self._lock:
            servers = [*self._servers.values(), *(server for server, _ in self._old)]
            ending = [server.stop(grace) for server in servers]
        self._addresses.give_up()
        if first:
            threading.Thread(target=self._finish, args=(ending,), name="xds server ends", daemon=True).start()
        if grace is None:
            self._ended.wait()
        return self._ended

    def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether the time was over before that."""
        return not self._ended.wait(timeout)

    @property
    def xds_client(self) -> XdsClientThread | None:
        """What watches the resources, for those who debug; None before the start."""
        return self._client

    def wait_until_serving(self, timeout: float | None = None) -> bool:
        """Wait until it serves at all of its addresses; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(self._addresses.are_served, timeout)

    def _require_unstarted(self, message: str) -> None:
        if self._client is not None:
            raise ValueError(message)

    def _apply(self, port: Port, outcome: ServerConfiguration | Failed) -> None:
        with self._lock:
            if self._stopping:
                return
            state = drive(self._serving(port, self._addresses.heed(port, outcome)), self._take)
        self._addresses.change_state(port, state)
        with self._changed:
            self._changed.notify_all()

    def _take(self, step: Step[grpc.Server]) -> None:
        match step:
            case StartServer(server):
                server.start()
            case DrainServer(server):
                self._old = [each for each in self._old if not each[1].is_set()]
                self._old.append((server, server.stop(self._settings.drain)))
            case DiscardServer(server):
                server.stop(None)
            case _:
                assert_never(step)

    def _finish(self, ending: list[threading.Event]) -> None:
        for each in ending:
            each.wait()
        self._side.close()
        self._ended.set()
