"""The ports for HTTPProxies: one table for all hosts without TLS, a chain for each behind it, one for the fallback."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.httpproxy.downstream_tls import DownstreamTls
from authplane.controlplane.graph.model.host_model import Answering, Host, RouteTable, misdirected
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.port_model import (
    Address,
    Certificate,
    PlainPort,
    Port,
    PortMemory,
    SecurePort,
    TlsChain,
)
from authplane.controlplane.graph.model.programming import (
    FALLBACK_CHAIN,
    FALLBACK_ROUTES,
    HTTP_LISTENER,
    HTTPS_LISTENER,
    route_name,
)
from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.resources.kinds.configuration import Listeners

Found = Mapping[Ref, tuple[Problem, ...]]
_WITHDRAWN: Final = 503
_ELSEWHERE: Final = misdirected([ANY])


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What a root HTTPProxy becomes, and what its build has to say about it and those that it includes."""

    host: Host
    plain: Host
    """The same without TLS."""
    secure: TlsChain | None
    tls: DownstreamTls | None
    served: bool
    """Otherwise an error has withdrawn it."""
    clusters: frozenset[str]
    """Where its requests are sent."""
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """The ports, certificates and clusters of HTTPProxies."""

    ports: tuple[Port, ...]
    certificates: tuple[Certificate, ...]
    clusters: frozenset[str]
    """Where their requests are sent."""


def secure_chain(host: Host, tls: DownstreamTls) -> TlsChain:
    """Return the chain of a host behind TLS; a request for another host there gets 421 (misdirected)."""
    name = route_name(host.name)
    return TlsChain(
        name=name,
        hostname=host.name,
        certificates=(tls.certificate.name,),
        limits=tls.limits,
        clients=tls.clients,
        table=RouteTable(name=name, entries=(host, _ELSEWHERE)),
        by_name_alone=True,
    )


def assemble(roots: Sequence[Root], claimed: frozenset[str], listeners: Listeners, memory: PortMemory) -> Proxies:
    """Join the roots; a wildcard must not answer for a name that another HTTPProxy claims, served or not."""
    memory.start()
    below = _below_wildcards(claimed)
    shown = [each for root in roots if root.tls for each in (root.tls.certificate, root.tls.fallback) if each]
    certificates = {certificate.name: certificate for certificate in shown}
    return Proxies(
        ports=tuple(map(memory.share, _ports(roots, below, listeners))),
        certificates=tuple(certificates[name] for name in sorted(certificates)),
        clusters=frozenset().union(*(root.clusters for root in roots)),
    )


def _ports(roots: Sequence[Root], below: Mapping[str, Sequence[str]], listeners: Listeners) -> Iterator[Port]:
    plain = sorted((root.plain for root in roots), key=_name)
    if plain:
        refused = _others_below(plain, below, {host.name for host in plain})
        withdrawn = (Answering(name=name, names=(name,), status=_WITHDRAWN) for name in refused)
        yield PlainPort(
            name=HTTP_LISTENER,
            where=Address(listeners.http.address, listeners.http.port),
            counted_as=HTTP_LISTENER,
            table=RouteTable(name=HTTP_LISTENER, entries=(*withdrawn, *plain)),
        )
    secure = sorted((_aware(root.secure, root.host, below) for root in roots if root.secure), key=_hostname)
    if secure:
        yield SecurePort(
            name=HTTPS_LISTENER,
            where=Address(listeners.https.address, listeners.https.port),
            counted_as=HTTPS_LISTENER,
            chains=(*secure, *_fallback(roots, below)),
        )


def _fallback(roots: Sequence[Root], below: Mapping[str, Sequence[str]]) -> Iterator[TlsChain]:
    """Join the roots that clients may reach without naming them in TLS: they share one chain."""
    joined = [(root.host, root.tls.limits, root.tls.fallback) for root in roots if root.tls and root.tls.fallback]
    if not joined:
        return
    _, limits, certificate = joined[0]
    hosts = sorted((host for host, _, _ in joined), key=_name)
    others = _others_below(hosts, below, {host.name for host in hosts})
    yield TlsChain(
        name=FALLBACK_CHAIN,
        hostname=ANY,
        certificates=(certificate.name,),
        limits=replace(
            limits,
            minimum=max(each.minimum for _, each, _ in joined),
            maximum=max(each.maximum for _, each, _ in joined),
        ),
        table=RouteTable(name=FALLBACK_ROUTES, entries=(misdirected([ANY, *others]), *hosts)),
    )


def _name(host: Host) -> str:
    return host.name


def _hostname(chain: TlsChain) -> str:
    return chain.hostname


def _aware(chain: TlsChain, host: Host, below: Mapping[str, Sequence[str]]) -> TlsChain:
    """Return a chain that knows what of its wildcard others claim; most are none, and stay the same object."""
    others = below.get(chain.hostname)
    if not others:
        return chain
    return replace(chain, table=replace(chain.table, entries=(host, misdirected([ANY, *others]))))


def _others_below(hosts: Iterable[Host], below: Mapping[str, Sequence[str]], served: Container[str]) -> tuple[str, ...]:
    """Return the names, other than those that are served, that wildcards among the hosts would answer for."""
    found = {name for host in hosts for name in below.get(host.name, ()) if name not in served}
    return tuple(sorted(found))


def _below_wildcards(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return, for every wildcard that there could be, the names that it would answer for, sorted."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        above = name.removeprefix("*.").partition(".")[2]
        while above:
            found[f"*.{above}"].append(name)
            above = above.partition(".")[2]
    return found
