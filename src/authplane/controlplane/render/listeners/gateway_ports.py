"""Ports of Gateways: one connection manager for all hosts of an HTTP port, one for each listener behind TLS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, assert_never

from envoy.config.listener.v3 import listener_components_pb2, listener_pb2

from authplane.controlplane.graph.gateway.gateway_api import splits
from authplane.controlplane.graph.model.graph_model import ConnectionSettings
from authplane.controlplane.graph.model.host_model import GatewayHost
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.port_model import GatewayChain, GatewayPort, PlainPort, SecurePort
from authplane.controlplane.graph.model.programming import gateway_listener, gateway_routes
from authplane.controlplane.graph.model.route_authorization import AuthorizationService, Enforced, Shadow
from authplane.controlplane.render.ext_authz_filter import manner_of
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ, Chain, Guard
from authplane.controlplane.render.listeners.proxy_ports import (
    ask_for_certificates,
    connection_manager,
    listener_shell,
    tls_context,
    tls_inspector,
    transport_socket,
)
from authplane.controlplane.render.native.native_decisions import Provider, possible_of, requirement_name
from authplane.controlplane.render.native.native_filters import Natives, join
from authplane.controlplane.render.resource_parts import Part, Whole
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.memo import Memo, Same
from authplane.core.timeouts import After, UseDefault

_STATS: Final = "gateway"
_LONGEST_REQUEST: Final = After(timedelta(seconds=60))


@dataclass(frozen=True, slots=True)
class Needed:
    """What the connection manager of some hosts has to know."""

    chain: Chain
    tokens: Mapping[str, tuple[Provider, ...]]
    """Whose tokens are looked at once keys are there, by the name of what is wanted.

    Routes of before may want what new ones do not, on account of keys that are gone.
    """


class Needs:
    """Finds what connection managers have to know, for each once; with a ``memo`` nothing is found again."""

    def __init__(self, envoy: Release | None = CURRENT, memo: Memo[Same, Any] | None = None) -> None:
        self._envoy = envoy
        self._memo: Memo[Same, Needed] = memo if memo is not None else Memo()
        self._chains: dict[Chain, Chain] | None = None

    def of(self, hosts: tuple[GatewayHost, ...]) -> Needed:
        """Return what the connection manager of these hosts has to know."""
        return self._memo.ensure(Same(hosts), None, partial(self._find, hosts))

    def chain(self, hosts: tuple[GatewayHost, ...]) -> Chain:
        """Return its filters; equal ones are the same object."""
        return self.of(hosts).chain

    def _find(self, hosts: tuple[GatewayHost, ...]) -> Needed:
        shares = [share for split in splits(hosts) for share in split.shares]
        enforced = [each.authorization for each in shares if isinstance(each.authorization, Enforced)]
        possible = ((each, possible_of(each.placing, self._envoy)) for each in enforced)
        tokens = {requirement_name(each): found.providers for each, found in possible if found and found.providers}
        chain = replace(_chain_of(enforced, self._envoy), mcp=any(each.mcp for each in shares))
        return Needed(self._one(chain), tokens)

    def _one(self, chain: Chain) -> Chain:
        """Return equal filters as one object: every route is rendered for them, and they are compared as often."""
        if self._chains is None:
            # Most connection managers have the same ones: those are worth a look, and not each that has them.
            known = {id(each.made.chain): each.made.chain for each in self._memo.before.values()}
            self._chains = {each: each for each in known.values()}
        return self._chains.setdefault(chain, chain)


def gateway_listeners_of(
    ports: Iterable[GatewayPort], connections: ConnectionSettings, needs: Needs
) -> Iterator[Whole[listener_pb2.Listener]]:
    """Return the listener of every port."""
    for port in ports:
        name = gateway_listener(port.where.port)
        shell = listener_shell(name, port.where, _held(port, needs))
        match port:
            case PlainPort():
                chain = needs.chain(port.hosts)
                manager = connection_manager(_STATS, name, chain, _with_limit(connections, chain))
                shell.filter_chains.append(listener_components_pb2.FilterChain(filters=[manager]))
                yield Whole(name, shell, "filter_chains", ())
            case SecurePort():
                shell.listener_filters.append(tls_inspector())
                number = port.where.port
                parts = tuple(
                    Part("chain", each, partial(_chain, number, each, connections, needs), (number, connections))
                    for each in port.chains
                )
                yield Whole(name, shell, "filter_chains", parts)
            case _:
                assert_never(port)


def _with_limit(connections: ConnectionSettings, chain: Chain) -> ConnectionSettings:
    """Bound the time in which requests have to arrive where some are for MCP servers, whose streams may stand still."""
    unbounded = chain.mcp and isinstance(connections.request, UseDefault)
    return replace(connections, request=_LONGEST_REQUEST) if unbounded else connections


def _chain_of(enforced: Sequence[Enforced], envoy: Release | None) -> Chain:
    """Return the one filter that asks the policy server, if any request is checked, and what Envoy decides before.

    Routes are never chosen anew after a check: it was made for the backend that the first choice led to.
    """
    # An older Envoy does not know what it is not to heed, and would deny.
    tries_out = envoy is not None and envoy.tries_checks_out
    services = {each.service for each in enforced if tries_out or not isinstance(each.service.on_failure, Shadow)}
    guards = tuple(
        Guard(name=_name(each), manner=manner_of(each), service=each, clear_route_cache=False)
        for each in sorted(services, key=_name)
    )
    return Chain(guards=guards, natives=_natives(enforced, envoy))


def _name(service: AuthorizationService) -> str:
    """Name the filter that asks, and the one that asks about policies in shadow alone."""
    return f"{EXT_AUTHZ}/shadow" if isinstance(service.on_failure, Shadow) else EXT_AUTHZ


def _natives(enforced: Iterable[Enforced], envoy: Release | None) -> Natives | None:
    """Return what Envoy may decide once it has the keys of all issuers: those come and go, and filters should not."""
    placings = [each.placing for each in enforced if each.placing is not None]
    found = [placed for each in placings if (placed := possible_of(each, envoy)) is not None]
    if envoy is None or not found:
        return None
    settings = placings[0].settings
    shared = Natives(envoy=envoy, most_bytes=settings.limits.body, denial_format=settings.denial_format)
    return join(found, shared)


def _held(port: GatewayPort, needs: Needs) -> int:
    """Return how many bytes of a request may wait until its body is read for the second time."""
    groups = [port.hosts] if isinstance(port, PlainPort) else [each.hosts for each in port.chains]
    found = [natives for hosts in groups if (natives := needs.chain(hosts).natives) is not None]
    return max((each.most_bytes for each in found if each.reads_twice), default=0)


def _chain(
    port: int, chain: GatewayChain, connections: ConnectionSettings, needs: Needs
) -> listener_components_pb2.FilterChain:
    name = gateway_routes(port, chain.name)
    checks = needs.chain(chain.hosts)
    tls = tls_context(chain.certificates, chain.limits)
    if chain.clients is not None:
        ask_for_certificates(tls, chain.clients)
    if checks.natives is not None and checks.natives.certificates:
        # Rules are for certificates that were verified, and on a session that is resumed Envoy does not verify any.
        tls.disable_stateless_session_resumption = True
        tls.disable_stateful_session_resumption = True
    match = listener_components_pb2.FilterChainMatch(transport_protocol="tls")
    if chain.hostname != ANY:
        match.server_names.append(chain.hostname)
    return listener_components_pb2.FilterChain(
        name=name,
        filter_chain_match=match,
        filters=[connection_manager(_STATS, name, checks, _with_limit(connections, checks))],
        transport_socket=transport_socket(tls),
    )
