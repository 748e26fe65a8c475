"""The ports that clients connect to, the TLS settings of each, and the hosts that it serves."""

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import TypeAlias

from authplane.controlplane.graph.model.host_model import Host, RouteTable
from authplane.controlplane.graph.model.upstreams import NO_LIMITS, TlsLimits
from authplane.core.memo import Memo
from authplane.core.names import ObjectName
from authplane.core.secret import Secret
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a listener listens."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """Which parts of the client's certificate the origin gets."""

    subject: bool = False
    certificate: bool = False
    chain: bool = False
    dns: bool = False
    uri: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificates:
    """The certificates that clients present."""

    ca: bytes | None
    """The CA of the certificates; None if any is accepted."""
    verified: bool = True
    """Whether ``ca`` must have signed a certificate; otherwise it is only forwarded, as its author configured."""
    required: bool = True
    revoked: bytes | None = None
    """Certificate revocation lists, PEM."""
    leaf_only: bool = False
    forwarded: Forwarded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate chain and its key, PEM; they belong together."""

    name: ObjectName
    chain: bytes
    key: Secret[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsChain:
    """The TLS settings for clients that send a host name, and the table of their requests."""

    name: str
    hostname: str
    """The server name (SNI) that clients send; ``*`` is any name that no other chain has, or none."""
    certificates: tuple[ObjectName, ...]
    limits: TlsLimits = NO_LIMITS
    clients: ClientCertificates | None = None
    table: RouteTable
    by_name_alone: bool = False
    """Whether the chain matches by server name only, not by TLS as transport: only TLS clients send a server name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPort:
    """A port for HTTP."""

    name: str
    where: Address
    counted_as: str
    """The prefix of the statistics of its requests."""
    table: RouteTable

    @property
    def tables(self) -> tuple[RouteTable, ...]:
        """Where requests are looked up."""
        return (self.table,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurePort:
    """A port for HTTPS; there is at least one chain."""

    name: str
    where: Address
    counted_as: str
    """The prefix of the statistics of its requests."""
    chains: tuple[TlsChain, ...]

    @property
    def tables(self) -> tuple[RouteTable, ...]:
        """Where requests are looked up."""
        return tuple(each.table for each in self.chains)


Port: TypeAlias = PlainPort | SecurePort


def hosts_of(ports: Iterable[Port]) -> Iterator[Host]:
    """Return every host, once for each table that contains it."""
    return (host for port in ports for table in port.tables for host in table.hosts)


@dataclass(frozen=True, slots=True)
class PortMemory:
    """The ports of the last build, and their chains."""

    ports: Memo[str, Port] = field(default_factory=Memo)
    chains: Memo[str, TlsChain] = field(default_factory=Memo)

    def start(self) -> None:
        """Begin a build."""
        self.ports.start()
        self.chains.start()

    def share(self, port: Port) -> Port:
        """Return the known port for an equal one, and with known chains for equal ones."""
        if isinstance(port, SecurePort):
            port = replace(port, chains=tuple(self.chains.share(each.name, each) for each in port.chains))
        return self.ports.share(port.name, port)
