"""A server with threads that xDS configures."""

import threading
from collections.abc import Callable
from typing import Any

import grpc

from authplane.dataplane.routing.resolver import Failed, ServerConfiguration
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.call_parts import Registered, TakesHandlers
from authplane.dataplane.runtime.connections.side_channels import SideChannels
from authplane.dataplane.runtime.servers.configured_server import Addresses, XdsSettings
from authplane.dataplane.runtime.servers.ports import Credentials, NotServableError, Port
from authplane.dataplane.runtime.servers.serving_states import NotServing, Serving, ServingState
from authplane.dataplane.runtime.xds.xds_client import XdsClientThread


class XdsServer(TakesHandlers, grpc.Server):
    """Listens where and as long as its Listeners say so.

    Every new call is judged by the newest configuration, whenever its connection was made. If the TLS of a Listener
    changes, another server takes the connections, and those to the old one may stay for a while.
    """

    def __init__(
        self,
        settings: XdsSettings,
        make: Callable[[Gate, SideChannels, Registered], grpc.Server],
        handlers: Registered,
    ) -> None:
        self._settings = settings
        self._make = make
        self._handlers = handlers
        self._side = SideChannels()
        self._addresses = Addresses(settings, self._side)
        self._servers: dict[str, grpc.Server] = {}
        self._old: list[tuple[grpc.Server, threading.Event]] = []
        self._client: XdsClientThread | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._stopping = False
        self._ended = threading.Event()

    def add_insecure_port(self, address: str) -> int:
        """Listen on an address, ``IP:port``, when its Listener says so; returns the port."""
        return self._add(address, None)

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Listen on an address with TLS, when its Listener says so; returns the port."""
        return self._add(address, server_credentials)

    def start(self) -> None:
        """Begin to watch the Listeners. Connections are taken as soon as these are there."""
        if self._client is not None:
            raise ValueError("Cannot start already-started server!")
        self._client = XdsClientThread(self._settings.bootstrap, self._settings.watched)
        self._addresses.watch(self._client, self._apply)

    def stop(self, grace: float | None) -> threading.Event:
        """Take no more calls; those under way have so many seconds. Returns what is set when all have ended.

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
    def states(self) -> tuple[ServingState, ...]:
        """Whether it serves, for each address."""
        return self._addresses.states

    @property
    def xds_client(self) -> XdsClientThread | None:
        """What watches the resources, for those who debug; None before the start."""
        return self._client

    def wait_until_serving(self, timeout: float | None = None) -> bool:
        """Wait until it serves at all of its addresses; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(self._addresses.are_served, timeout)

    def _add(self, address: str, credentials: Credentials) -> int:
        if self._client is not None:
            raise ValueError("ports are added before the server is started")
        return self._addresses.add(address, credentials)

    def _apply(self, port: Port, outcome: ServerConfiguration | Failed) -> None:
        with self._lock:
            if self._stopping:
                return
            outcome = self._addresses.heed(port, outcome)
            if isinstance(outcome, Failed):
                self._retire(port)
                state: ServingState = NotServing(port.address, outcome.why)
            else:
                state = self._serve(port, outcome)
        self._addresses.change_state(port, state)
        with self._changed:
            self._changed.notify_all()

    def _serve(self, port: Port, configuration: ServerConfiguration) -> ServingState:
        """Take connections, by another server if need be; the old one may finish its calls."""
        try:
            demanded = self._addresses.demanded(port, configuration)
            if demanded is None:
                return Serving(port.address)
            server = self._make(port.gate, self._side, self._handlers)
            port.open(server, demanded[1])
            server.start()
        except (NotServableError, RuntimeError) as error:
            self._retire(port)
            return NotServing(port.address, str(error))
        self._retire(port)
        self._servers[port.address] = server
        port.met = demanded[0]
        return Serving(port.address)

    def _retire(self, port: Port) -> None:
        port.met = None
        self._old = [each for each in self._old if not each[1].is_set()]
        server = self._servers.pop(port.address, None)
        if server is not None:
            self._old.append((server, server.stop(self._settings.drain)))

    def _finish(self, ending: list[threading.Event]) -> None:
        for each in ending:
            each.wait()
        self._side.close()
        self._ended.set()
