"""The graph, built in named passes."""

from collections.abc import Mapping
from dataclasses import dataclass

from authplane.base.names import Ref
from authplane.base.problems import Problem
from authplane.graph.around import Around
from authplane.graph.extensions import extension_clusters
from authplane.graph.hosts import Hosts, build_hosts, owners
from authplane.graph.model import Address, Forward, Graph
from authplane.graph.reports import Reports
from authplane.graph.service_clusters import ServiceClusters
from authplane.graph.services import report_endpoint_slices
from authplane.graph.settings import DEFAULTS, read_settings, unusable_configuration
from authplane.graph.upstreams import Cluster, ServiceCluster
from authplane.resources.documents import Resources


@dataclass(frozen=True, slots=True)
class Built:
    """The graph and what the same pass found."""

    graph: Graph
    problems: Mapping[Ref, tuple[Problem, ...]]


def build_graph(resources: Resources) -> Built:
    """Turn resources into the routing graph; what is invalid is left out and reported."""
    reports = Reports()
    report_endpoint_slices(resources, reports)
    # Nobody listens without a host, and without settings there is none.
    settings = read_settings(resources, reports) or DEFAULTS
    unusable = unusable_configuration(resources, reports)
    extensions = extension_clusters(resources, settings, reports)
    services = ServiceClusters(resources)
    around = Around(
        resources=resources,
        settings=settings,
        unusable=unusable,
        owners=owners(resources.proxies.values()),
        extensions=extensions,
        clusters=services,
        reports=reports,
    )
    hosts = build_hosts(around)
    clusters: list[Cluster] = [*extensions.values(), *_used(services, hosts)]
    where = settings.listeners
    graph = Graph(
        http=Address(where.http.address, where.http.port),
        https=Address(where.https.address, where.https.port),
        timeouts=settings.timeouts,
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
