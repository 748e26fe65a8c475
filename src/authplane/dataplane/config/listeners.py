"""Listeners: what a server listens on, and the configuration that a server or client follows."""

from enum import Enum
from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.config.security import ServerTls
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.filters.networks import Network
from authplane.dataplane.filters.registry import FilterConfig, FilterType


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFilter:
    """A filter by its name in the connection manager."""

    name: str
    kind: FilterType
    config: FilterConfig
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class RouteName:
    """The routes are a resource of their own."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionManager:
    """Filters and where calls go."""

    filters: tuple[HttpFilter, ...]
    """The last one is the only one that ends a chain."""
    routes: RouteConfiguration | RouteName
    longest: float | None = None
    """How many seconds a call may take; None or 0 means any number."""


class SourceType(Enum):
    """Where connections come from."""

    ANY = 0
    SAME_IP_OR_LOOPBACK = 1
    EXTERNAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMatch:
    """Which connections a chain is for; nothing means all."""

    destinations: tuple[Network, ...] = ()
    raw_buffer: bool = False
    """Whether the chain says that it is for connections without TLS detection, as all are to gRPC."""
    source_type: SourceType = SourceType.ANY
    sources: tuple[Network, ...] = ()
    source_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChain:
    """What is done with the connections that match."""

    name: str = ""
    match: ChainMatch | None = ChainMatch()
    """None means that it requires what gRPC never knows, so that it never matches."""
    manager: ConnectionManager
    tls: ServerTls | None = None
    """None means plain text, or the credentials that the program passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerListener:
    """What a server obeys."""

    name: str
    address: Endpoint
    chains: tuple[FilterChain, ...] = ()
    """No two match the same connections equally well."""
    default_chain: FilterChain | None = None

    @property
    def managers(self) -> tuple[ConnectionManager, ...]:
        """The connection managers of all chains."""
        default = () if self.default_chain is None else (self.default_chain,)
        return tuple(chain.manager for chain in (*self.chains, *default))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiListener:
    """What a client obeys."""

    name: str
    manager: ConnectionManager


Listener: TypeAlias = ServerListener | ApiListener
