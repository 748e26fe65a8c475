"""The graph, built in named passes."""

from collections.abc import Mapping
from dataclasses import dataclass

from authplane.base.names import Ref
from authplane.base.problems import Problem
from authplane.graph.extensions import extension_clusters
from authplane.graph.hosts import Hosts, build_hosts
from authplane.graph.listeners import usable_listeners
from authplane.graph.model import Address, Cluster, Forward, Graph, ServiceCluster
from authplane.graph.reports import Reports
from authplane.graph.routes import ServiceClusters
from authplane.graph.services import report_endpoint_slices
from authplane.resources.documents import Resources
from authplane.resources.kinds.authplane import Listeners


@dataclass(frozen=True, slots=True)
class Built:
    """The graph and what the same pass found."""

    graph: Graph
    problems: Mapping[Ref, tuple[Problem, ...]]


def build_graph(resources: Resources) -> Built:
    """Turn resources into the routing graph; what is invalid is left out and reported."""
    reports = Reports()
    report_endpoint_slices(resources, reports)
    extensions = extension_clusters(resources, reports)
    services = ServiceClusters(resources)
    listeners = usable_listeners(resources)
    hosts = build_hosts(resources, extensions, services, listeners, reports)
    clusters: list[Cluster] = [*extensions.values(), *_used(services, hosts)]
    where = listeners or Listeners()  # nobody listens without a host, and without listeners there is none
    graph = Graph(
        http=Address(where.http.address, where.http.port),
        https=Address(where.https.address, where.https.port),
        plain_hosts=hosts.plain,
        secure_hosts=hosts.secure,
        refused=hosts.refused,
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
        certificates=hosts.certificates,
    )
    return Built(graph, reports.found())


def _used(services: ServiceClusters, hosts: Hosts) -> list[ServiceCluster]:
    """Leave out what only withdrawn hosts asked for."""
    used = {
        target.cluster
        for host in [*hosts.plain, *(secure.host for secure in hosts.secure)]
        for route in host.routes
        if isinstance(route.action, Forward)
        for target in route.action.targets
    }
    return [cluster for cluster in services.built() if cluster.name in used]
