"""The routing graph: what the gateway does, in no proxy's vocabulary.

Every value here is valid: invalid parts have been left out and reported.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from authplane.controlplane.graph.model.grpc_servers import GrpcServer
from authplane.controlplane.graph.model.port_model import Address, Certificate, Port
from authplane.controlplane.graph.model.upstreams import CertificateFiles, Cluster
from authplane.core.timeouts import Timeout, UseDefault
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How long the proxy waits for clients, and which proxies before it it believes."""

    request: Timeout = UseDefault()
    connection_idle: Timeout = UseDefault()
    stream_idle: Timeout = UseDefault()
    max_connection_duration: Timeout = UseDefault()
    delayed_close: Timeout = UseDefault()
    shutdown_grace_period: Timeout = UseDefault()
    trusted_hops: int = 0
    """Number of trusted proxies in front of this one, which append client addresses to ``x-forwarded-for``."""


DEFAULT_CONNECTIONS: Final = ConnectionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything the gateway does. Each tuple is sorted by name."""

    http: Address
    """Where HTTPProxies are served, as far as there are any."""
    https: Address
    connections: ConnectionSettings = DEFAULT_CONNECTIONS
    proxies: tuple[Port, ...] = ()
    """The ports for HTTPProxies: HTTP, then HTTPS."""
    gateways: tuple[Port, ...] = ()
    """The ports for Gateways, by number."""
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The key sets of issuers, as JSON, by address."""
    grpc_servers: tuple[GrpcServer, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[Certificate | CertificateFiles, ...] = ()

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every port."""
        return (*self.proxies, *self.gateways)
