"""Builds the graph in named passes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from authplane.controlplane.graph.build_memory import Memory
from authplane.controlplane.graph.gateway.gateway_api import NO_GATEWAYS, Gateways, build_gateways
from authplane.controlplane.graph.gateway.grpc_backends import build_grpc_servers, close_all
from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.httpproxy.ingress_class import leave_to_others
from authplane.controlplane.graph.httpproxy.proxy_authorization import global_authorization
from authplane.controlplane.graph.httpproxy.proxy_ports import Proxies
from authplane.controlplane.graph.httpproxy.virtual_hosts import build_hosts, owners
from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.grpc_servers import Judged
from authplane.controlplane.graph.model.port_model import Address, Certificate
from authplane.controlplane.graph.model.target_placements import Placements
from authplane.controlplane.graph.model.upstreams import CertificateFiles, Cluster, Plaintext
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import (
    DEFAULTS,
    Settings,
    read_settings,
    unusable_configuration,
)
from authplane.controlplane.graph.tls.upstream_tls import client_certificate
from authplane.controlplane.graph.upstreams.extension_services import extension_clusters
from authplane.controlplane.graph.upstreams.policy_connection import POLICY_CLUSTER, PolicyServer, read_policy_server
from authplane.controlplane.graph.upstreams.resolved_services import report_endpoint_slices
from authplane.controlplane.graph.upstreams.service_clusters import ServiceClusters
from authplane.controlplane.graph.upstreams.service_tls import read_service_tls
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Policies
from authplane.resources.documents import Resources


@dataclass(frozen=True, slots=True)
class Built:
    """The graph and what the same pass found."""

    graph: Graph
    problems: Mapping[Ref, tuple[Problem, ...]]
    gateways: Gateways = NO_GATEWAYS
    """What became of Gateways, HTTPRoutes and Backends."""
    policy_server: PolicyServer | None = None
    """Who decides by policies; None if nothing would ask."""


def build_graph(
    resources: Resources,
    memory: Memory | None = None,
    policy_server: PolicyServer | None = None,
    policies: Policies | None = None,
    keys: Mapping[str, str] | None = None,
) -> Built:
    """Turn resources into the routing graph; invalid parts are left out and reported.

    With the memory of an earlier build the result is the same, and unchanged parts are the same objects.
    ``policy_server`` replaces the one that the resources name. With compiled ``policies``, proxies and gRPC servers get
    the rules that they decide without a check; ``keys`` are the key sets of issuers by address.
    """
    memory = memory or Memory()
    reports = Reports()
    report_endpoint_slices(resources, reports)
    # If the settings are invalid no host is served, so the defaults open nothing.
    settings = read_settings(resources, reports) or DEFAULTS
    resources = leave_to_others(resources, settings, reports)
    server = read_policy_server(resources, reports)
    unusable = unusable_configuration(resources, reports)
    tls = read_service_tls(resources)
    clusters_of_extensions = extension_clusters(resources, settings, tls, reports, memory.extensions)
    extensions = {name: cluster.extension for name, cluster in clusters_of_extensions.items()}
    services = ServiceClusters(resources, settings, tls, memory.clusters)
    shared = BuildContext(
        resources=resources,
        settings=settings,
        unusable=unusable,
        owners=owners(resources, settings),
        extensions=extensions,
        global_authorization=global_authorization(settings, resources, extensions, reports),
        clusters=services,
        reports=reports,
    )
    proxies = build_hosts(shared, memory.roots, memory.ports)
    taken = [port.where.port for port in proxies.ports]
    asked, placements = policy_server or server, Placements(policies, keys, memory.gateways.placements)
    gateways = build_gateways(resources, settings, asked, placements, services, taken, reports, memory.gateways)
    grpc_servers = build_grpc_servers(resources, asked, gateways.protection, policies, reports)
    if unusable:
        gateways, grpc_servers = gateways.withdrawn(), close_all(grpc_servers)
    memory.grpc_servers.start()
    memory.certificates.start()
    known = services.built()
    used = sorted({*proxies.clusters, *gateways.services})
    clusters: list[Cluster] = [*clusters_of_extensions.values(), *gateways.clusters, *(known[name] for name in used)]
    graph = replace(
        _served(settings, proxies),
        gateways=gateways.ports,
        keys=placements.key_sets,
        grpc_servers=tuple(memory.grpc_servers.share(each.ref, each) for each in grpc_servers),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
        certificates=tuple(
            memory.certificates.share(each.name, each)
            for each in _certificates(
                resources, settings, (*proxies.certificates, *gateways.certificates), clusters, asked.client
            )
        ),
    )
    return Built(graph, reports.found(), gateways, asked if _asks(graph) else None)


def _asks(graph: Graph) -> bool:
    """Tell whether the policy server is called for anything."""
    return any(cluster.name == POLICY_CLUSTER for cluster in graph.clusters) or any(
        isinstance(server.authorization, Judged) for server in graph.grpc_servers
    )


def _served(settings: Settings, served: Proxies) -> Graph:
    """Return the graph of the HTTPProxies."""
    where = settings.listeners
    return Graph(
        http=Address(where.http.address, where.http.port),
        https=Address(where.https.address, where.https.port),
        connections=settings.connections,
        proxies=served.ports,
    )


def _certificates(
    resources: Resources,
    settings: Settings,
    served: Iterable[Certificate],
    clusters: Sequence[Cluster],
    shown_to_policy_server: Certificate | CertificateFiles | None,
) -> tuple[Certificate | CertificateFiles, ...]:
    """Return what hosts show to clients and clusters show to upstreams."""
    found: dict[ObjectName, Certificate | CertificateFiles] = {certificate.name: certificate for certificate in served}
    for shown in (client_certificate(resources, settings), shown_to_policy_server):
        if isinstance(shown, Certificate | CertificateFiles) and any(_shows(each, shown.name) for each in clusters):
            found[shown.name] = shown
    return tuple(found[name] for name in sorted(found))


def _shows(cluster: Cluster, certificate: ObjectName) -> bool:
    return not isinstance(cluster.tls, Plaintext) and cluster.tls.client_certificate == certificate
