"""The targets of policies that proxies and gRPC servers lead to."""

from collections.abc import Iterator, Mapping

from authplane.graph.guards import Enforced
from authplane.graph.http_routes import GATEWAY, TARGET
from authplane.graph.model import GatewayHost, GatewayPort, Graph, PlainPort, SecurePort, Split
from authplane.policy.access.backend import parse_target
from authplane.policy.access.guards import Target


def reached_targets(graph: Graph) -> Mapping[Target, frozenset[str]]:
    """Return every target that requests are checked for, with the issuers whose keys proxies have there.

    They are in the order in which they are served; gRPC servers come last.
    """
    found: dict[Target, frozenset[str]] = {}
    for port in graph.gateways:
        for enforced in _checks(port):
            context = dict(enforced.context)
            target = parse_target(context.get(TARGET), context.get(GATEWAY))
            found[target] = enforced.placing.keys if enforced.placing is not None else frozenset()
    return found | {Target(backend=server.ref): frozenset() for server in graph.grpc_servers}


def _checks(port: GatewayPort) -> Iterator[Enforced]:
    for host in _hosts(port):
        for route in host.routes:
            shares = route.action.shares if isinstance(route.action, Split) else ()
            yield from (each.authorization for each in shares if isinstance(each.authorization, Enforced))


def _hosts(port: GatewayPort) -> Iterator[GatewayHost]:
    match port:
        case PlainPort(hosts=hosts):
            yield from hosts
        case SecurePort(chains=chains):
            for chain in chains:
                yield from chain.hosts
