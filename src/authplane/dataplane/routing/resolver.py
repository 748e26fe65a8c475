"""Resolves the name of a Listener: what to watch, and the whole configuration once it is known."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from authplane.core.addresses import parse_ip_address
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.dataplane.config.clusters import AggregateOf, Cluster, ClusterEndpoints, DnsEndpoint, EdsEndpoints
from authplane.dataplane.config.listeners import ApiListener, ConnectionManager, Listener, RouteName, ServerListener
from authplane.dataplane.config.metadata import ResourceMetadata
from authplane.dataplane.config.routes import RouteConfiguration, clusters_of
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.routing.authority_hosts import HostTable
from authplane.dataplane.routing.channel_targets import Group, dns_group, endpoint_groups
from authplane.xds.server.served_types import TypeUrl, XdsName

_MOST_DEPTH: Final = 16

_LONGEST_DETAILS: Final = 512
_NO_LISTENER: Final = (
    "Add it to the control plane, or listen on the address of another Listener. "
    "For a Backend, use the values of spec.grpc.address and spec.grpc.port."
)
"""What to do if a server has no Listener: usually its own address is another one than that of its Backend."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failed:
    """A resource that there is not, or that could not be used; or what follows from that."""

    why: str
    missing: bool = False
    """The control plane does not have the resource."""

    @property
    def details(self) -> str:
        """As much of it as the status of a call has room for: a resource may have any number of problems."""
        if len(self.why) <= _LONGEST_DETAILS:
            return self.why
        return f"{shorten(self.why, _LONGEST_DETAILS)} (the log authplane.xds contains all {len(self.why)} characters)"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that is watched has not come yet."""


Resource: TypeAlias = Listener | RouteConfiguration | Cluster | ClusterEndpoints
Known: TypeAlias = Mapping[XdsName, Resource | Failed]
"""What has come; a name that is not in it is still awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution(Generic[T]):
    """What to watch from now on, no more and no less, and what is known by it."""

    watch: frozenset[XdsName]
    outcome: T | Failed | Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfiguration:
    """Everything that a server obeys."""

    listener: ServerListener
    routes: Mapping[str, RouteConfiguration | Failed]
    """Those that are resources of their own."""

    def routes_of(self, manager: ConnectionManager) -> RouteConfiguration | Failed:
        """Return the routes of one of its connection managers."""
        return self.routes[manager.routes.name] if isinstance(manager.routes, RouteName) else manager.routes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfiguration:
    """Everything that a client obeys."""

    manager: ConnectionManager
    routes: RouteConfiguration
    """Of the one virtual host that serves the client's authority."""
    clusters: Mapping[str, tuple[Group, ...] | Failed]
    """Where calls go, in order of preference, for every cluster that a route names."""
    metadata: Mapping[str, ResourceMetadata] = field(default_factory=lambda: MappingProxyType({}))
    """That of these clusters, where there is any."""


def resolve_server(name: str, bound: Endpoint, known: Known) -> Resolution[ServerConfiguration]:
    """Resolve the Listener of a server that is bound to an address, and its routes."""
    look = _Lookup(known)
    return Resolution(outcome=_server(name, bound, look), watch=frozenset(look.asked))


def resolve_client(name: str, authority: str, known: Known) -> Resolution[ClientConfiguration]:
    """Resolve the Listener of a client, its routes, and the clusters of those that serve its authority."""
    look = _Lookup(known)
    return Resolution(outcome=_client(name, authority, look), watch=frozenset(look.asked))


class _Lookup:
    """Looks resources up, and remembers which."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.asked: set[XdsName] = set()

    def of(self, type_url: TypeUrl, name: str, kind: type[T]) -> T | Failed | Waiting:
        self.asked.add((type_url, name))
        found = self._known.get((type_url, name), Waiting())
        if isinstance(found, Failed | Waiting | kind):
            return found
        return Failed(f"{name} is a resource of another type")


def _server(name: str, bound: Endpoint, look: _Lookup) -> ServerConfiguration | Failed | Waiting:
    listener = look.of(TypeUrl.LISTENER, name, ServerListener)
    if isinstance(listener, Failed) and listener.missing:
        return Failed(f"{listener.why}. {_NO_LISTENER}", missing=True)
    if isinstance(listener, Failed | Waiting):
        return listener
    if not _same_address(listener.address, bound):
        there = f"{listener.address.address} port {listener.address.port}"
        return Failed(f"Listener {name} is for {there}, not for {bound.address} port {bound.port}")
    names = {each.routes.name for each in listener.managers if isinstance(each.routes, RouteName)}
    routes: dict[str, RouteConfiguration | Failed] = {}
    waiting = False
    for each in sorted(names):
        found = look.of(TypeUrl.ROUTE, each, RouteConfiguration)
        if isinstance(found, Waiting):
            waiting = True
        else:
            routes[each] = found
    return Waiting() if waiting else ServerConfiguration(listener=listener, routes=routes)


def _same_address(wanted: Endpoint, bound: Endpoint) -> bool:
    """Compare addresses as such, not as texts: an IPv6 address has many spellings."""
    one, other = parse_ip_address(wanted.address), parse_ip_address(bound.address)
    same = wanted.address == bound.address if one is None or other is None else one == other
    return same and wanted.port == bound.port


def _client(name: str, authority: str, look: _Lookup) -> ClientConfiguration | Failed | Waiting:
    listener = look.of(TypeUrl.LISTENER, name, ApiListener)
    if isinstance(listener, Failed | Waiting):
        return listener
    manager = listener.manager
    routes = (
        look.of(TypeUrl.ROUTE, manager.routes.name, RouteConfiguration)
        if isinstance(manager.routes, RouteName)
        else manager.routes
    )
    if isinstance(routes, Failed | Waiting):
        return routes
    place = HostTable.of(routes.virtual_hosts).pick(authority)
    if place is None:
        return Failed(f"no virtual host of {routes.name or name} matches authority '{authority}'")
    host = routes.virtual_hosts[place]
    clusters = {each: _Flattening(look).groups(each) for each in clusters_of(host)}
    complete = {each: found for each, found in clusters.items() if not isinstance(found, Waiting)}
    if len(complete) < len(clusters):
        return Waiting()
    return ClientConfiguration(
        manager=manager,
        routes=RouteConfiguration(name=routes.name, virtual_hosts=(host,)),
        clusters=complete,
        metadata=_metadata(complete, look),
    )


def _metadata(names: Iterable[str], look: _Lookup) -> Mapping[str, ResourceMetadata]:
    found = {name: look.of(TypeUrl.CLUSTER, name, Cluster) for name in names}
    return {name: each.metadata for name, each in found.items() if isinstance(each, Cluster) and each.metadata}


class _Flattening:
    """Turns a cluster, also an aggregate one, into groups of endpoints; each cluster counts once (gRFC A37)."""

    def __init__(self, look: _Lookup) -> None:
        self._look = look
        self._seen: set[str] = set()

    def groups(self, name: str) -> tuple[Group, ...] | Failed | Waiting:
        found = self._below(name, 0)
        if isinstance(found, Failed | Waiting):
            return found
        return found or Failed(f"cluster {name} has no usable endpoints")

    def _below(self, name: str, depth: int) -> tuple[Group, ...] | Failed | Waiting:
        if depth >= _MOST_DEPTH:
            return Failed(f"aggregate clusters are nested more than {_MOST_DEPTH} levels deep, at {name}")
        if name in self._seen:
            return ()
        self._seen.add(name)
        cluster = self._look.of(TypeUrl.CLUSTER, name, Cluster)
        if isinstance(cluster, Failed | Waiting):
            return cluster
        if isinstance(cluster.discovery, AggregateOf):
            return _joined([self._below(each, depth + 1) for each in cluster.discovery.clusters])
        return self._leaf(cluster, cluster.discovery)

    def _leaf(self, cluster: Cluster, discovery: EdsEndpoints | DnsEndpoint) -> tuple[Group, ...] | Failed | Waiting:
        if isinstance(discovery, DnsEndpoint):
            return (dns_group(cluster, discovery.target),)
        endpoints = self._look.of(TypeUrl.ENDPOINT, discovery.name, ClusterEndpoints)
        return endpoints if isinstance(endpoints, Failed | Waiting) else endpoint_groups(cluster, endpoints)


def _joined(parts: list[tuple[Group, ...] | Failed | Waiting]) -> tuple[Group, ...] | Failed | Waiting:
    """Join what clusters give; one that fails is passed over as long as another gives something."""
    if any(isinstance(each, Waiting) for each in parts):
        return Waiting()
    groups = tuple(group for each in parts if isinstance(each, tuple) for group in each)
    failures = [each for each in parts if isinstance(each, Failed)]
    return failures[0] if failures and not groups else groups
