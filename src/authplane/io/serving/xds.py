"""A server with threads that xDS configures."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc

from authplane.dataplane.resolver import Failed, ServerConfiguration, resolve_server
from authplane.dataplane.resource_types import ResourceTypes
from authplane.dataplane.serving import ServerRules
from authplane.io.interceptors.gate import Gate
from authplane.io.process import place_of
from authplane.io.serving.parts import Count, Registered, Teller, filter_state
from authplane.io.serving.ports import (
    NOT_CONFIGURED,
    Credentials,
    NotServableError,
    Port,
    credentials_for,
    demand_of,
    reserve,
)
from authplane.io.serving.states import NotServing, Serving, ServingState, Told
from authplane.io.side_channels import SideChannels, channel_keys
from authplane.io.xds_client import XdsClientThread
from authplane.io.xds_resolving import Resolving
from authplane.xds.bootstrap import Bootstrap

_log: Final = logging.getLogger("authplane.grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsSettings:
    """How a server obeys xDS."""

    bootstrap: Bootstrap
    types: ResourceTypes
    count: Count | None = None
    told: Told | None = None
    drain: float = 600.0
    """Seconds that calls on old connections have when these have to end."""
    drain_on_change: bool = False
    """Whether connections have to end whenever the Listener changes, also if only filters do.

    grpcio cancels calls that begin in that moment.
    """
    default_authority: str | None = None


def apply_configuration(port: Port, configuration: ServerConfiguration, settings: XdsSettings, tell: Teller) -> None:
    """Judge calls by a configuration from now on; what filters keep is kept."""
    port.kept = port.kept.next_generation()
    port.gate.rules = ServerRules.of(configuration, filter_state(settings.count, tell, port.kept))
    port.configuration = configuration


def keys_of(ports: Iterable[Port]) -> frozenset[Any]:
    """Return the side channels that the configurations of ports name."""
    return frozenset().union(*(channel_keys(port.configuration) for port in ports))


def change_state(port: Port, state: ServingState, settings: XdsSettings) -> None:
    """Take note of a state, and tell of it if it is new."""
    if state == port.state:
        return
    port.state = state
    match state:
        case Serving(address):
            _log.info("serving at %s", address)
        case NotServing(address, why):
            _log.warning("not serving at %s: %s", address, why)
    if settings.told is not None:
        try:
            settings.told(state)
        except Exception as error:  # noqa: BLE001 (configuration must go on to be applied)
            _log.error("the callback for serving states failed: %s", place_of(error))


class XdsServer(grpc.Server):
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
        self._tell = Teller()
        self._ports: list[Port] = []
        self._servers: dict[str, grpc.Server] = {}
        self._old: list[tuple[grpc.Server, threading.Event]] = []
        self._resolving: list[Resolving[ServerConfiguration]] = []
        self._client: XdsClientThread | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._stopping = False
        self._ended = threading.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add handlers."""
        self._handlers.add(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Add handlers by name."""
        self._handlers.add_named(service_name, method_handlers)

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
        types = self._settings.types
        self._client = client = XdsClientThread(
            self._settings.bootstrap, (types.listener, types.routes, types.cluster, types.endpoints)
        )
        for port in self._ports:
            self._resolving.append(self._resolve(port, client))
        for each in self._resolving:
            each.settle()

    def stop(self, grace: float | None) -> threading.Event:
        """Take no more calls; those under way have so many seconds. Returns what is set when all have ended."""
        self._stopping = True
        for each in self._resolving:
            each.end()
        if self._client is not None:
            self._client.close()
        with self._lock:
            servers = [*self._servers.values(), *(server for server, _ in self._old)]
            self._servers.clear()
            self._old.clear()
            ending = [server.stop(grace) for server in servers]
        for port in self._ports:
            port.reservation.close()
            change_state(port, NotServing(port.address, "the server was stopped"), self._settings)
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
        return tuple(port.state for port in self._ports)

    @property
    def xds_client(self) -> XdsClientThread | None:
        """What watches the resources, for those who debug; None before the start."""
        return self._client

    def wait_until_serving(self, timeout: float | None = None) -> bool:
        """Wait until it serves at all of its addresses; returns whether it does."""

        def serves() -> bool:
            return all(isinstance(state, Serving) for state in self.states)

        with self._changed:
            return self._changed.wait_for(serves, timeout)

    def _add(self, address: str, credentials: Credentials) -> int:
        if self._client is not None:
            raise ValueError("ports are added before the server is started")
        port = reserve(address, credentials, self._settings.bootstrap, self._settings.default_authority)
        self._ports.append(port)
        return port.endpoint.port

    def _resolve(self, port: Port, client: XdsClientThread) -> Resolving[ServerConfiguration]:
        return Resolving(
            client,
            self._settings.types,
            lambda known: resolve_server(port.name, port.endpoint, known),
            lambda outcome: self._apply(port, outcome),
        )

    def _apply(self, port: Port, outcome: ServerConfiguration | Failed) -> None:
        with self._lock:
            if self._stopping:
                return
            if isinstance(outcome, Failed):
                port.gate.rules = NOT_CONFIGURED
                self._retire(port)
                state: ServingState = NotServing(port.address, outcome.why)
            else:
                apply_configuration(port, outcome, self._settings, self._tell)
                self._side.keep(keys_of(self._ports))
                state = self._serve(port, outcome)
        change_state(port, state, self._settings)
        with self._changed:
            self._changed.notify_all()

    def _serve(self, port: Port, configuration: ServerConfiguration) -> ServingState:
        """Take connections, by another server if need be; the old one may finish its calls."""
        try:
            demand = demand_of(port, configuration.listener, drains=self._settings.drain_on_change)
            if port.met == demand:
                return Serving(port.address)
            credentials = credentials_for(port, demand.tls, self._settings.bootstrap)
            server = self._make(port.gate, self._side, self._handlers)
            port.open(server, credentials)
            server.start()
        except (NotServableError, RuntimeError) as error:
            self._retire(port)
            return NotServing(port.address, str(error))
        self._retire(port)
        self._servers[port.address] = server
        port.met = demand
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
