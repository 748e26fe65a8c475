"""What HTTPProxies came to in a graph, by listener, and where the routes of any port lead."""

from collections.abc import Iterable
from dataclasses import dataclass

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Answering, Host, forwards_of
from authplane.controlplane.graph.model.port_model import ClientCertificates, PlainPort, Port, SecurePort, TlsChain
from authplane.controlplane.graph.model.programming import FALLBACK_CHAIN
from authplane.controlplane.graph.model.route_authorization import RouteAuthorization
from authplane.controlplane.graph.model.route_model import Forward
from authplane.controlplane.graph.model.upstreams import TlsLimits
from authplane.core.names import ObjectName


@dataclass(frozen=True, slots=True)
class SecureHost:
    """A host of an HTTPProxy behind TLS, and its chain."""

    chain: TlsChain

    @property
    def host(self) -> Host:
        [host] = self.chain.table.hosts
        return host

    @property
    def certificate(self) -> ObjectName:
        [certificate] = self.chain.certificates
        return certificate

    @property
    def limits(self) -> TlsLimits:
        return self.chain.limits

    @property
    def clients(self) -> ClientCertificates | None:
        return self.chain.clients

    @property
    def elsewhere(self) -> tuple[str, ...]:
        return elsewhere(self.chain)


def plain_hosts(graph: Graph) -> tuple[Host, ...]:
    """Return the hosts of HTTPProxies that are served without TLS."""
    return tuple(host for port in graph.proxies if isinstance(port, PlainPort) for host in port.table.hosts)


def secure_hosts(graph: Graph) -> tuple[SecureHost, ...]:
    """Return the hosts of HTTPProxies that clients name in TLS."""
    return tuple(SecureHost(chain) for chain in _chains(graph) if chain.name != FALLBACK_CHAIN)


def fallback(graph: Graph) -> TlsChain | None:
    """Return the chain of those who name no host in TLS."""
    return next((chain for chain in _chains(graph) if chain.name == FALLBACK_CHAIN), None)


def refused(graph: Graph) -> tuple[str, ...]:
    """Return the withdrawn names that a wildcard without TLS would answer for."""
    entries = [entry for port in graph.proxies if isinstance(port, PlainPort) for entry in port.table.entries]
    return tuple(name for entry in entries if isinstance(entry, Answering) for name in entry.names)


def elsewhere(chain: TlsChain) -> tuple[str, ...]:
    """Return the names that a chain covers and that others claim."""
    entries = [entry for entry in chain.table.entries if isinstance(entry, Answering)]
    return tuple(name for entry in entries for name in entry.names if name != "*")


def hosts_on(port: Port) -> tuple[Host, ...]:
    """Return every host of a port, once for each chain that serves it."""
    return tuple(host for table in port.tables for host in table.hosts)


def forwards_on(port: Port) -> tuple[Forward, ...]:
    """Return where the requests to a port are sent."""
    return tuple(forwards_of(hosts_on(port)))


def authorizations_on(ports: Iterable[Port]) -> tuple[RouteAuthorization, ...]:
    """Return what holds for the requests that are sent on, for each target by itself."""
    routes = [route for port in ports for host in hosts_on(port) for route in host.routes]
    sent_on = [route for route in routes if isinstance(route.action, Forward)]
    return tuple(each for route in sent_on for each in route.authorizations)


def _chains(graph: Graph) -> tuple[TlsChain, ...]:
    return tuple(chain for port in graph.proxies if isinstance(port, SecurePort) for chain in port.chains)
