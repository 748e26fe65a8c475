"""Selects the route and the filters of calls; everything is built when a configuration arrives."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.listeners import ConnectionManager
from authplane.dataplane.config.metadata import NO_METADATA, ResourceMetadata, shown_to_filters
from authplane.dataplane.config.routes import (
    Forward,
    NonForwarding,
    Overrides,
    Route,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from authplane.dataplane.filters.call_headers import AUTHORITY, lookup_in
from authplane.dataplane.filters.calls import Call, Code, Flow, Running, Side, Stop
from authplane.dataplane.filters.chain import run_filters
from authplane.dataplane.filters.filter_metadata import FilterMetadata
from authplane.dataplane.filters.registry import State
from authplane.dataplane.routing.authority_hosts import HostTable
from authplane.dataplane.routing.overrides import Effective, Mismatch, effective_chain
from authplane.matching.fractions import Fraction, is_drawn
from authplane.matching.header_matchers import HeaderMatcher, Lookup, matches_header
from authplane.matching.string_matchers import Prefix, as_test

Draw: TypeAlias = Callable[[], float]
"""Draws a number of at least 0 and less than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The route of a call: its filters run, then the call stops, or continues to its cluster or handler."""

    filters: tuple[Running, ...] = ()
    stop: Stop | None = None
    """How the call ends if all filters allow it; None if it continues."""
    cluster: str = ""
    """Where a client sends it; empty on the server side."""
    longest: float | None = None
    """Maximum duration of the call in seconds, for a client; None means any."""
    metadata: ResourceMetadata = NO_METADATA
    """That of the route."""


@dataclass(frozen=True, slots=True)
class RoutesMissing:
    """There are no routes, for this reason."""

    why: str


NO_HOST: Final = Routed(stop=Stop(code=Code.UNAVAILABLE, message="no virtual host serves this authority"))
NO_ROUTE: Final = Routed(stop=Stop(code=Code.UNAVAILABLE, message="no route matches this call"))
NO_AUTHORITY: Final = Routed(
    stop=Stop(code=Code.UNAVAILABLE, message="the authority of the call is unknown, but a route reads it")
)
_NO_ACTION: Final = {
    Side.SERVER: Stop(code=Code.UNAVAILABLE, message="the route has no non_forwarding_action"),
    Side.CLIENT: Stop(code=Code.UNAVAILABLE, message="the route does not forward to a cluster"),
}
_ALL_CALLS: Final = frozenset({RouteMatch(path=Prefix("")), RouteMatch(path=Prefix("/"))})


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of several ends of a route; it is taken if the number that is drawn is below its bound."""

    bound: float
    routed: Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuiltRoute:
    path: Callable[[str], bool]
    headers: tuple[HeaderMatcher, ...]
    fraction: Fraction | None
    choices: tuple[_Choice, ...]

    @property
    def asks_authority(self) -> bool:
        """Whether a condition reads the authority of a call."""
        return any(each.name in AUTHORITY for each in self.headers)

    def matches(self, call: Call, draw: Draw) -> bool:
        return (
            self.path(call.path)
            and (not self.headers or _all_match(self.headers, call))
            and (self.fraction is None or is_drawn(self.fraction, draw()))
        )

    def pick(self, draw: Draw) -> Routed:
        if len(self.choices) == 1:
            return self.choices[0].routed
        number = draw() * self.choices[-1].bound
        return next((each.routed for each in self.choices if number < each.bound), self.choices[-1].routed)


@dataclass(frozen=True, slots=True)
class _Told:
    """Filters that read the metadata of a route."""

    filters: tuple[Running, ...]
    route: FilterMetadata
    cluster: FilterMetadata

    def run(self, call: Call) -> Flow:
        return run_filters(self.filters, replace(call, route_metadata=self.route, cluster_metadata=self.cluster))


@dataclass(frozen=True, slots=True)
class RouteTable:
    """The routes of a connection manager, with the filters of each ready to run."""

    hosts: HostTable
    routes: tuple[tuple[_BuiltRoute, ...], ...]
    """Of each virtual host."""
    always: Routed | None
    """What becomes of every call, if that is the same for all."""

    def route(self, call: Call, draw: Draw) -> Routed:
        """Tell what becomes of a call."""
        if self.always is not None:
            return self.always
        place = self.hosts.pick(call.authority)
        if place is None:
            return NO_HOST
        for each in self.routes[place]:
            # The next route could have weaker filters.
            if call.authority is None and each.headers and each.path(call.path) and each.asks_authority:
                return NO_AUTHORITY
            if each.matches(call, draw):
                return each.pick(draw)
        return NO_ROUTE


def build_route_table(
    manager: ConnectionManager,
    routes: RouteConfiguration | RoutesMissing,
    side: Side,
    state: State,
    clusters: Mapping[str, ResourceMetadata] | None = None,
) -> RouteTable:
    """Build the filters of every route; ``clusters`` is the metadata of clusters that have some.

    Without routes calls fail, after the filters as the connection manager has them.
    """
    builder = _Builder(manager, side, state, clusters or {})
    if isinstance(routes, RoutesMissing):
        stop = Stop(code=Code.UNAVAILABLE, message=f"no routes: {routes.why}")
        return RouteTable(HostTable.of(()), (), builder.routed(Routed(stop=stop)))
    built = tuple(builder.host(host) for host in routes.virtual_hosts)
    return RouteTable(HostTable.of(routes.virtual_hosts), built, _always(routes.virtual_hosts, built))


def headers_of(call: Call) -> Lookup:
    """Return how matchers of routes see the headers of a call: those with binary values are never seen."""
    lookup = lookup_in(call)
    return lambda name: None if name.endswith("-bin") else lookup(name)


def _all_match(matchers: tuple[HeaderMatcher, ...], call: Call) -> bool:
    lookup = headers_of(call)
    return all(matches_header(each, lookup) for each in matchers)


def _always(hosts: tuple[VirtualHost, ...], built: tuple[tuple[_BuiltRoute, ...], ...]) -> Routed | None:
    if len(hosts) != 1 or "*" not in hosts[0].domains or not built[0]:
        return None
    choices = built[0][0].choices
    return choices[0].routed if hosts[0].routes[0].match in _ALL_CALLS and len(choices) == 1 else None


class _Builder:
    """Builds filters once for every configuration and override that are in use."""

    def __init__(
        self, manager: ConnectionManager, side: Side, state: State, clusters: Mapping[str, ResourceMetadata]
    ) -> None:
        self._manager = manager
        self._side = side
        self._state = state
        self._clusters = clusters
        self._built: dict[tuple[str, Hashable], Running] = {}
        self._at_once: dict[tuple[str, int], Running] = {}
        """The same by the identity of the override: a large one takes long to compare, and many routes may share it."""

    def host(self, host: VirtualHost) -> tuple[_BuiltRoute, ...]:
        return tuple(
            _BuiltRoute(
                path=as_test(route.match.path),
                headers=route.match.headers,
                fraction=route.match.fraction,
                choices=self._choices(route, host.overrides),
            )
            for route in host.routes
        )

    def routed(self, end: Routed, *levels: Overrides) -> Routed:
        """Add the filters of these levels to a route; the most specific level comes first."""
        chain = effective_chain(self._manager.filters, *levels)
        if isinstance(chain, Mismatch):
            message = f"the route overrides filter '{chain.name}' with the configuration of another filter type"
            return Routed(stop=Stop(code=Code.UNAVAILABLE, message=message))
        filters = tuple(self._running(each) for each in chain)
        return replace(end, filters=self._told(filters, end))

    def _told(self, filters: tuple[Running, ...], end: Routed) -> tuple[Running, ...]:
        """Let filters see what the route and the cluster of a call say."""
        route, cluster = end.metadata, self._clusters.get(end.cluster, NO_METADATA)
        if not filters or not (route or cluster):
            return filters
        return (_Told(filters, shown_to_filters(route), shown_to_filters(cluster)),)

    def _choices(self, route: Route, host: Overrides) -> tuple[_Choice, ...]:
        match self._side, route.action:
            case Side.CLIENT, Forward(clusters=clusters, longest=longest):
                limit = self._manager.longest if longest is None else longest
                bounds = accumulate(each.weight for each in clusters)
                ends = (Routed(cluster=each.name, longest=limit or None, metadata=route.metadata) for each in clusters)
                return tuple(
                    _Choice(bound, self.routed(end, each.overrides, route.overrides, host))
                    for bound, end, each in zip(bounds, ends, clusters, strict=True)
                )
            case Side.SERVER, NonForwarding():
                end = Routed(metadata=route.metadata)
            case _:
                end = Routed(stop=_NO_ACTION[self._side], metadata=route.metadata)
        return (_Choice(1, self.routed(end, route.overrides, host)),)

    def _running(self, each: Effective) -> Running:
        override = None if each.override is None else each.override.config
        place = (each.filter.name, id(override))
        if place not in self._at_once:
            key = (each.filter.name, override)
            if key not in self._built:
                self._built[key] = each.filter.config.build(self._state, override)
            self._at_once[place] = self._built[key]
        return self._at_once[place]
