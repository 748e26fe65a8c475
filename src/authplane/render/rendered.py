"""The whole graph as Envoy resources."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from authplane.graph.model import Graph
from authplane.render.clusters import render_cluster, render_endpoints
from authplane.render.listeners import render_listeners
from authplane.render.routes import render_fallback_routes, render_plain_routes, render_secure_routes
from authplane.render.secrets import render_secret
from authplane.xds.snapshot import Snapshot
from authplane.xds.types import TypeUrl

Resource: TypeAlias = Listener | RouteConfiguration | Cluster | ClusterLoadAssignment | Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Every resource of a graph, each kind sorted by name."""

    listeners: tuple[Listener, ...]
    routes: tuple[RouteConfiguration, ...]
    clusters: tuple[Cluster, ...]
    endpoints: tuple[ClusterLoadAssignment, ...]
    secrets: tuple[Secret, ...]


def render_graph(graph: Graph) -> Rendered:
    """Render everything; a graph cannot be one that this fails for."""
    shared = [render_fallback_routes(graph.fallback)] if graph.fallback is not None else []
    if graph.plain_hosts:
        shared.append(render_plain_routes(graph))
    return Rendered(
        listeners=tuple(render_listeners(graph)),
        routes=(*(render_secure_routes(host) for host in graph.secure_hosts), *shared),
        clusters=tuple(render_cluster(cluster) for cluster in graph.clusters),
        endpoints=tuple(told for told in map(render_endpoints, graph.clusters) if told is not None),
        secrets=tuple(render_secret(certificate) for certificate in graph.certificates),
    )


def snapshot_of(rendered: Rendered, before: Snapshot | None = None) -> Snapshot:
    """Serialize the resources: the same resources give the same snapshot, and share what ``before`` has already."""
    return Snapshot.of(
        {
            TypeUrl.LISTENER: _serialized(rendered.listeners),
            TypeUrl.ROUTE: _serialized(rendered.routes),
            TypeUrl.CLUSTER: _serialized(rendered.clusters),
            TypeUrl.ENDPOINT: _serialized(rendered.endpoints),
            TypeUrl.SECRET: _serialized(rendered.secrets),
        },
        before,
    )


def _serialized(resources: Iterable[Resource]) -> dict[str, bytes]:
    bodies: dict[str, bytes] = {}
    for resource in resources:
        name = resource.cluster_name if isinstance(resource, ClusterLoadAssignment) else resource.name
        if name in bodies:
            raise ValueError(f"two resources are named {name!r}")
        bodies[name] = resource.SerializeToString(deterministic=True)
    return bodies
