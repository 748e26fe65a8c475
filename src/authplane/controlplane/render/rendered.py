"""The whole graph as Envoy resources."""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.programming import TOKENS
from authplane.controlplane.render.cluster_messages import has_endpoints, render_cluster, render_endpoints
from authplane.controlplane.render.grpc.grpc_listeners import grpc_listeners_of
from authplane.controlplane.render.listeners.connection_needs import Needs
from authplane.controlplane.render.listeners.port_listeners import listeners_of
from authplane.controlplane.render.native.token_filter import render_tokens
from authplane.controlplane.render.resource_parts import Bodies, Part, Resource, Single, message_of
from authplane.controlplane.render.routes.route_tables import route_tables_of
from authplane.controlplane.render.secret_messages import render_secret
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.values import dataclass
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Every resource of a graph, each kind sorted by name."""

    listeners: tuple[Listener, ...]
    routes: tuple[RouteConfiguration, ...]
    clusters: tuple[Cluster, ...]
    endpoints: tuple[ClusterLoadAssignment, ...]
    secrets: tuple[Secret, ...]
    extensions: tuple[TypedExtensionConfig, ...] = ()
    """Filters that are configured by resources of their own."""
    grpc_listeners: tuple[Listener, ...] = ()
    """Those of gRPC servers, which are not for proxies."""


def render_graph(graph: Graph, envoy: Release | None = CURRENT) -> Rendered:
    """Render everything; a graph cannot be one that this fails for.

    It is for proxies of a release of Envoy; None is for those that do not say which one they are.
    """
    needs = Needs(envoy)
    return Rendered(
        listeners=tuple(message_of(each) for each in listeners_of(graph.ports, graph.connections, needs)),
        routes=tuple(message_of(each) for each in _tables(graph, needs)),
        clusters=tuple(message_of(each) for each in _clusters(graph)),
        endpoints=tuple(message_of(each) for each in _endpoints(graph)),
        secrets=tuple(message_of(each) for each in _secrets(graph)),
        extensions=tuple(message_of(each) for each in _extensions(graph, needs)),
        grpc_listeners=tuple(message_of(each) for each in grpc_listeners_of(graph.grpc_servers)),
    )


def snapshot_of(
    graph: Graph, bodies: Bodies, before: Snapshot | None = None, envoy: Release | None = CURRENT
) -> Snapshot:
    """Serialize everything: the same graph gives the same snapshot, and shares what ``before`` has already.

    ``bodies`` and ``before`` are those of the same release of Envoy.
    """
    bodies.start()
    needs = Needs(envoy, bodies.memo)
    listeners: Iterator[Resource[Listener]] = listeners_of(graph.ports, graph.connections, needs)
    return Snapshot.of(
        {
            TypeUrl.LISTENER: bodies.serialize(chain(listeners, grpc_listeners_of(graph.grpc_servers))),
            TypeUrl.ROUTE: bodies.serialize(_tables(graph, needs)),
            TypeUrl.CLUSTER: bodies.serialize(_clusters(graph)),
            TypeUrl.ENDPOINT: bodies.serialize(_endpoints(graph)),
            TypeUrl.SECRET: bodies.serialize(_secrets(graph)),
            TypeUrl.EXTENSION: bodies.serialize(_extensions(graph, needs)),
        },
        before,
    )


def _tables(graph: Graph, needs: Needs) -> Iterator[Single[RouteConfiguration]]:
    """Return the route configurations; by name, those of HTTPS come before that of HTTP."""
    return route_tables_of((*reversed(graph.proxies), *graph.gateways), needs)


def _extensions(graph: Graph, needs: Needs) -> Iterator[Single[TypedExtensionConfig]]:
    """Return the filter that verifies tokens, if some listener has it: it waits for this, with keys or without."""
    found = [needs.of(table) for port in graph.ports for table in port.tables]
    wanted = {name: providers for each in found for name, providers in each.tokens.items()}
    if wanted:
        keys = dict(graph.keys)
        yield Single(Part("tokens", TOKENS, partial(render_tokens, wanted, keys), (wanted, keys)))


def _clusters(graph: Graph) -> Iterator[Single[Cluster]]:
    for cluster in graph.clusters:
        yield Single(Part("cluster", cluster, partial(render_cluster, cluster)))


def _endpoints(graph: Graph) -> Iterator[Single[ClusterLoadAssignment]]:
    for cluster in graph.clusters:
        if has_endpoints(cluster):
            yield Single(Part("endpoints", cluster, partial(render_endpoints, cluster)))


def _secrets(graph: Graph) -> Iterator[Single[Secret]]:
    for certificate in graph.certificates:
        yield Single(Part("secret", certificate, partial(render_secret, certificate)))
