"""What servers that xDS configures share, with threads or with an event loop."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import grpc

from authplane.core.values import dataclass
from authplane.dataplane.routing.call_filters import ServerRules
from authplane.dataplane.routing.resolver import Failed, ServerConfiguration, resolve_server
from authplane.dataplane.routing.resource_types import ResourceTypes
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.filter_state import Count, Teller, filter_state
from authplane.dataplane.runtime.connections.side_channels import channel_keys
from authplane.dataplane.runtime.servers.registered_handlers import Registered, TakesHandlers
from authplane.dataplane.runtime.servers.serving_states import NotServing, Serving, ServingState, Told
from authplane.dataplane.runtime.servers.xds_ports import (
    NOT_CONFIGURED,
    Credentials,
    Demand,
    NotServableError,
    Port,
    credentials_for,
    demand_of,
    reserve,
)
from authplane.dataplane.runtime.xds.xds_resolving import Resolving, Watcher
from authplane.runtime.child_processes import place_of
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap

S = TypeVar("S", bound="grpc.Server | grpc.aio.Server")

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

    @property
    def watched(self) -> tuple[Any, ...]:
        """The types of resources that a server watches."""
        return self.types.listener, self.types.routes, self.types.cluster, self.types.endpoints


class KeepsChannels(Protocol):
    """Side channels of either kind."""

    def keep(self, keys: frozenset[Any]) -> None:
        """Keep the channels of these keys, and no others."""


class Addresses:
    """The addresses of a server, and what their Listeners say."""

    def __init__(self, settings: XdsSettings, side: KeepsChannels) -> None:
        self.settings: Final = settings
        self.ports: Final[list[Port]] = []
        self._side = side
        self._tell = Teller()
        self._resolving: list[Resolving[ServerConfiguration]] = []

    @property
    def states(self) -> tuple[ServingState, ...]:
        """Whether the server serves, for each address."""
        return tuple(port.state for port in self.ports)

    def are_served(self) -> bool:
        """Tell whether the server serves at all of them."""
        return all(isinstance(port.state, Serving) for port in self.ports)

    def add(self, address: str, credentials: Credentials) -> int:
        """Claim an address; returns its port. Raises `ValueError` or `OSError`."""
        port = reserve(address, credentials, self.settings.bootstrap, self.settings.default_authority)
        self.ports.append(port)
        return port.endpoint.port

    def watch(self, client: Watcher, publish: Callable[[Port, ServerConfiguration | Failed], None]) -> None:
        """Begin to watch the Listeners."""
        for port in self.ports:
            self._resolving.append(self._resolve(port, client, publish))
        for each in self._resolving:
            each.settle()

    def watch_no_more(self) -> None:
        """Watch nothing any more."""
        for each in self._resolving:
            each.end()

    def heed(self, port: Port, outcome: ServerConfiguration | Failed) -> ServerConfiguration | Failed:
        """Apply a new configuration to calls; return the outcome.

        If a filter of the program cannot be created, the server denies all calls.
        """
        if not isinstance(outcome, Failed):
            try:
                port.kept = port.kept.next_generation()
                rules = ServerRules.of(outcome, filter_state(self.settings.count, self._tell, port.kept))
            except Exception as error:  # noqa: BLE001 (to go on with the old rules would be to disobey)
                _log.error("cannot apply configuration: %s", place_of(error))
                outcome = Failed("cannot create the filters")
            else:
                port.gate.rules = rules
                port.configuration = outcome
                self._side.keep(frozenset().union(*(channel_keys(each.configuration) for each in self.ports)))
        if isinstance(outcome, Failed):
            port.gate.rules = NOT_CONFIGURED
        return outcome

    def demanded(
        self, port: Port, configuration: ServerConfiguration
    ) -> tuple[Demand, grpc.ServerCredentials | None] | None:
        """Return what another server must be made for; None if the present one will do. Raises `NotServableError`."""
        demand = demand_of(port, configuration.listener, drains=self.settings.drain_on_change)
        if port.met == demand:
            return None
        return demand, credentials_for(port, demand.tls, self.settings.bootstrap)

    def change_state(self, port: Port, state: ServingState) -> None:
        """Store a state, and report it if it is new."""
        if state == port.state:
            return
        port.state = state
        match state:
            case Serving(address):
                _log.info("serving at %s", address)
            case NotServing(address, why):
                _log.warning("not serving at %s: %s", address, why)
        if self.settings.told is not None:
            try:
                self.settings.told(state)
            except Exception as error:  # noqa: BLE001 (configuration must go on to be applied)
                _log.error("serving-state callback failed: %s", place_of(error))

    def give_up(self) -> None:
        """Let go of all of them."""
        for port in self.ports:
            port.reservation.close()
            self.change_state(port, NotServing(port.address, "the server was stopped"))

    def _resolve(
        self, port: Port, client: Watcher, publish: Callable[[Port, ServerConfiguration | Failed], None]
    ) -> Resolving[ServerConfiguration]:
        return Resolving(
            client,
            self.settings.types,
            lambda known: resolve_server(port.name, port.endpoint, known),
            lambda outcome: publish(port, outcome),
        )


@dataclass(frozen=True, slots=True)
class StartServer(Generic[S]):
    """Step: let a server take connections; raises `RuntimeError` if it cannot."""

    server: S


@dataclass(frozen=True, slots=True)
class DrainServer(Generic[S]):
    """Step: let a server take no more connections; its calls have some time to end."""

    server: S


@dataclass(frozen=True, slots=True)
class DiscardServer(Generic[S]):
    """Step: stop a server without calls at once."""

    server: S


Step: TypeAlias = StartServer[S] | DrainServer[S] | DiscardServer[S]


class ConfiguredServer(TakesHandlers, ABC, Generic[S]):
    """Listens on the addresses of its Listeners, while they exist.

    Every new call uses the newest configuration, also on old connections. If the TLS of a Listener
    changes, another server takes the connections, and those to the old one may stay for a while.
    """

    def __init__(
        self, settings: XdsSettings, make: Callable[[Gate], S], handlers: Registered, side: KeepsChannels
    ) -> None:
        self._settings = settings
        self._make = make
        self._handlers = handlers
        self._addresses = Addresses(settings, side)
        self._servers: dict[str, S] = {}
        self._stopping = False

    @property
    def states(self) -> tuple[ServingState, ...]:
        """Whether it serves, for each address."""
        return self._addresses.states

    def add_insecure_port(self, address: str) -> int:
        """Listen on an address, ``IP:port``, when its Listener says so; returns the port."""
        return self._add(address, None)

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Listen on an address with TLS, when its Listener says so; returns the port."""
        return self._add(address, server_credentials)

    def _add(self, address: str, credentials: Credentials) -> int:
        self._require_unstarted("The server is already started. Add ports before start().")
        return self._addresses.add(address, credentials)

    @abstractmethod
    def _require_unstarted(self, message: str) -> None:
        """Raise, as grpcio does, if the server has been started."""

    def _serving(self, port: Port, outcome: ServerConfiguration | Failed) -> Generator[Step[S], None, ServingState]:
        """Take connections as a Listener says, by another server if need be; the old one may finish its calls."""
        if isinstance(outcome, Failed):
            yield from self._retire(port)
            return NotServing(port.address, outcome.why)
        try:
            demanded = self._addresses.demanded(port, outcome)
            if demanded is None:
                return Serving(port.address)
            server = self._make(port.gate)
            port.open(server, demanded[1])
            yield StartServer(server)
        except (NotServableError, RuntimeError) as error:
            yield from self._retire(port)
            return NotServing(port.address, str(error))
        if self._stopping:
            # It was not among those that were stopped.
            yield DiscardServer(server)
            return NotServing(port.address, "the server was stopped")
        old, self._servers[port.address] = self._servers.get(port.address), server
        port.met = demanded[0]
        if old is not None:
            yield DrainServer(old)
        return Serving(port.address)

    def _retire(self, port: Port) -> Generator[Step[S], None, None]:
        port.met = None
        server = self._servers.pop(port.address, None)
        if server is not None:
            yield DrainServer(server)
