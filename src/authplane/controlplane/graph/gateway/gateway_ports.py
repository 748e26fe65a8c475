"""The ports for Gateways: one table for all hosts of an HTTP port, a chain for each listener behind TLS."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from authplane.controlplane.graph.gateway.gateway_listeners import Listener
from authplane.controlplane.graph.model.host_model import Answering, Host, RouteTable, misdirected
from authplane.controlplane.graph.model.hostnames import ANY, covers
from authplane.controlplane.graph.model.port_model import Address, PlainPort, Port, PortMemory, SecurePort, TlsChain
from authplane.controlplane.graph.model.programming import gateway_listener, gateway_routes
from authplane.controlplane.graph.model.upstreams import TlsLimits

_COUNTED_AS: Final = "gateway"


def gateway_ports(
    listeners: Iterable[Listener],
    hosts: Mapping[str, tuple[Host, ...]],
    address: str,
    tls: TlsLimits,
    memory: PortMemory,
) -> tuple[Port, ...]:
    """Return the ports of all listeners that are served; ``hosts`` are by the name of the listener."""
    memory.start()
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for each in listeners:
        by_port[each.port].append(each)
    made = (
        _port(Address(address, number), together, hosts, tls)
        for number, together in sorted(by_port.items())
        if any(each.served for each in together)
    )
    return tuple(map(memory.share, made))


def _port(where: Address, together: Sequence[Listener], hosts: Mapping[str, tuple[Host, ...]], tls: TlsLimits) -> Port:
    name = gateway_listener(where.port)
    served = [each for each in together if each.served]
    claimed = {each.hostname for each in together if each.conflicted is None}
    if served[0].secure:
        by_name = sorted(served, key=lambda each: each.name)
        chains = tuple(_chain(each, hosts[each.name], claimed, tls) for each in by_name)
        return SecurePort(name=name, where=where, counted_as=_COUNTED_AS, chains=chains)
    # Names of listeners that are not served get a host without routes.
    kept = (Host(name=each, routes=()) for each in claimed - {each.hostname for each in served})
    found = [host for each in served for host in hosts[each.name]]
    entries = tuple(sorted((*found, *kept), key=lambda host: host.name))
    return PlainPort(
        name=name, where=where, counted_as=_COUNTED_AS, table=RouteTable(name=name, entries=entries, gaps=True)
    )


def _chain(listener: Listener, hosts: tuple[Host, ...], claimed: Iterable[str], tls: TlsLimits) -> TlsChain:
    name = gateway_routes(listener.port, listener.name)
    others = sorted(each for each in claimed if each != listener.hostname and covers(listener.hostname, each))
    elsewhere = others if listener.hostname == ANY else [ANY, *others]
    return TlsChain(
        name=name,
        hostname=listener.hostname,
        certificates=tuple(dict.fromkeys(each.name for each in listener.certificates)),
        limits=tls,
        clients=listener.clients,
        table=RouteTable(name=name, entries=(*hosts, *_misdirected(elsewhere)), gaps=True),
    )


def _misdirected(names: Sequence[str]) -> Iterator[Answering]:
    if names:
        yield misdirected(names)
