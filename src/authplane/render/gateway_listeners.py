"""Ports of Gateways: one connection manager for all hosts of an HTTP port, one for each listener behind TLS."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, assert_never

from envoy.config.listener.v3 import listener_components_pb2, listener_pb2

from authplane.cel.envoy.release import CURRENT, Release
from authplane.graph.gateway_api import splits
from authplane.graph.guards import Enforced
from authplane.graph.hostnames import ANY
from authplane.graph.model import ConnectionTimeouts, GatewayChain, GatewayHost, GatewayPort, PlainPort, SecurePort
from authplane.graph.programming import gateway_listener, gateway_routes
from authplane.render.ext_authz import manner_of
from authplane.render.filters import EXT_AUTHZ, Chain, Guard
from authplane.render.listeners import (
    ask_for_certificates,
    connection_manager,
    listener_shell,
    tls_context,
    tls_inspector,
    transport_socket,
)
from authplane.render.parts import Part, Whole

_STATS: Final = "gateway"


def gateway_listeners_of(
    ports: Iterable[GatewayPort], timeouts: ConnectionTimeouts, envoy: Release | None = CURRENT
) -> Iterator[Whole[listener_pb2.Listener]]:
    """Return the listener of every port."""
    for port in ports:
        name = gateway_listener(port.where.port)
        shell = listener_shell(name, port.where)
        match port:
            case PlainPort():
                manager = connection_manager(_STATS, name, checks_of(port.hosts), timeouts)
                shell.filter_chains.append(listener_components_pb2.FilterChain(filters=[manager]))
                yield Whole(name, shell, "filter_chains", ())
            case SecurePort():
                shell.listener_filters.append(tls_inspector())
                number = port.where.port
                parts = (Part("chain", each, partial(_chain, number, each, timeouts), timeouts) for each in port.chains)
                yield Whole(name, shell, "filter_chains", tuple(parts))
            case _:
                assert_never(port)


def checks_of(hosts: Iterable[GatewayHost]) -> Chain:
    """Return the one filter that asks the policy server, if any request is checked.

    Routes are never chosen anew after a check: it was made for the backend that the first choice led to.
    """
    for split in splits(hosts):
        for share in split.shares:
            if isinstance(share.authorization, Enforced):
                service = share.authorization.service
                manner = manner_of(service)
                return (Guard(name=EXT_AUTHZ, manner=manner, service=service, clear_route_cache=False),)
    return ()


def _chain(port: int, chain: GatewayChain, timeouts: ConnectionTimeouts) -> listener_components_pb2.FilterChain:
    name = gateway_routes(port, chain.name)
    tls = tls_context(chain.certificates)
    if chain.clients is not None:
        ask_for_certificates(tls, chain.clients)
    match = listener_components_pb2.FilterChainMatch(transport_protocol="tls")
    if chain.hostname != ANY:
        match.server_names.append(chain.hostname)
    return listener_components_pb2.FilterChain(
        name=name,
        filter_chain_match=match,
        filters=[connection_manager(_STATS, name, checks_of(chain.hosts), timeouts)],
        transport_socket=transport_socket(tls),
    )
