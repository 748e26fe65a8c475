"""The targets of policies that requests reach through proxies and gRPC servers."""

from collections.abc import Mapping

from authplane.controlplane.graph.build import Built
from authplane.controlplane.graph.gateway.route_entries import GATEWAY, TARGET
from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import checks_of
from authplane.controlplane.graph.model.port_model import hosts_of
from authplane.controlplane.graph.model.target_placements import Placing
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.request_target import parse_target


def reached_targets(graph: Graph) -> Mapping[RequestTarget, frozenset[str]]:
    """Return every target that requests are checked for, with the issuers whose keys proxies have there.

    They are in the order in which they are served; gRPC servers come last.
    """
    return {
        target: placing.keys if placing is not None else frozenset()
        for target, placing in reached_placings(graph).items()
    }


def reached_placings(graph: Graph) -> Mapping[RequestTarget, Placing | None]:
    """Return the same targets, with the policies that apply to them as far as proxies get them."""
    found: dict[RequestTarget, Placing | None] = {}
    for check in checks_of(hosts_of(graph.gateways)):
        context = dict(check.context)
        found[parse_target(context.get(TARGET), context.get(GATEWAY))] = check.placing
    return found | {RequestTarget(backend=server.ref): None for server in graph.grpc_servers}


def routed_targets(built: Built) -> tuple[RequestTarget, ...]:
    """Return every target of a route, checked or not, served at the moment or not."""
    return (*built.gateways.ways, *(RequestTarget(backend=server.ref) for server in built.graph.grpc_servers))
