"""Selects the filters of calls; everything is built when a configuration arrives."""

from collections.abc import Iterable, Mapping
from typing import Final

from authplane.core.values import dataclass
from authplane.dataplane.config.listeners import ChainMatch, ConnectionManager, FilterChain, ServerListener, SourceType
from authplane.dataplane.filters.calls import Call, Code, Side, Stop
from authplane.dataplane.filters.registry import FilterConfig, State
from authplane.dataplane.routing.call_routing import Draw, Routed, RoutesMissing, RouteTable, build_route_table
from authplane.dataplane.routing.choose_chain import pick_chain
from authplane.dataplane.routing.resolver import Failed, ServerConfiguration

_NO_CHAIN: Final = Routed(stop=Stop(code=Code.UNAVAILABLE, message="no filter chain matches this connection"))
_UNKNOWN_CONNECTION: Final = Routed(stop=Stop(code=Code.UNAVAILABLE, message="the connection is unknown"))


@dataclass(frozen=True, slots=True)
class FixedRules:
    """The same filters for every call."""

    routed: Routed
    passes: bool = False
    """Whether every call goes on as it is."""

    @classmethod
    def of(cls, filters: Iterable[FilterConfig], state: State) -> "FixedRules":
        """Build filters that a program names itself."""
        routed = Routed(filters=tuple(each.build(state, None) for each in filters))
        return cls(routed, _passes(routed))

    def route(self, _: Call) -> Routed:
        """Return the filters of a call."""
        return self.routed


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What a Listener and its routes say."""

    listener: ServerListener
    tables: Mapping[int, RouteTable]
    """By the identity of the chain."""
    only: RouteTable | None
    """The one for all connections, if there is no other."""
    draw: Draw
    asks_local: bool
    """Whether it depends on our own address which chain serves a connection."""
    passes: bool
    """Whether every call goes on as it is."""

    @classmethod
    def of(cls, configuration: ServerConfiguration, state: State) -> "ServerRules":
        """Build the filters of all chains."""
        listener = configuration.listener
        chains = _chains(listener)
        built: dict[int, RouteTable] = {}
        tables = {id(chain): _table(configuration, chain.manager, state, built) for chain in chains}
        only = tables[id(chains[0])] if len(chains) == 1 and _takes_all(listener, chains[0]) else None
        passes = only is not None and only.always is not None and _passes(only.always)
        return cls(listener, tables, only, state.random, _asks_local(listener), passes)

    def route(self, call: Call) -> Routed:
        """Tell what becomes of a call, by its connection and its route."""
        if self.only is not None:
            return self.only.route(call, self.draw)
        if call.connection is None:
            return _UNKNOWN_CONNECTION
        local = call.connection.local
        # Some servers do not know their own address: another chain could have weaker filters than the intended one.
        if self.asks_local and not local.is_known:
            return _UNKNOWN_CONNECTION
        chain = pick_chain(self.listener, local, call.connection.remote)
        return _NO_CHAIN if chain is None else self.tables[id(chain)].route(call, self.draw)


def _chains(listener: ServerListener) -> tuple[FilterChain, ...]:
    default = () if listener.default_chain is None else (listener.default_chain,)
    return (*listener.chains, *default)


def _asks_local(listener: ServerListener) -> bool:
    matches = [chain.match for chain in listener.chains if chain.match is not None]
    return any(each.destinations or each.source_type is not SourceType.ANY for each in matches)


def _takes_all(listener: ServerListener, chain: FilterChain) -> bool:
    return chain is listener.default_chain or chain.match in {ChainMatch(), ChainMatch(raw_buffer=True)}


def _table(
    configuration: ServerConfiguration, manager: ConnectionManager, state: State, built: dict[int, RouteTable]
) -> RouteTable:
    # Chains may share a manager, and then share its filters.
    if id(manager) not in built:
        routes = configuration.routes_of(manager)
        known = RoutesMissing(routes.details) if isinstance(routes, Failed) else routes
        built[id(manager)] = build_route_table(manager, known, Side.SERVER, state)
    return built[id(manager)]


def _passes(routed: Routed) -> bool:
    return not routed.filters and routed.stop is None
