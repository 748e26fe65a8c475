"""Clusters: where their endpoints come from, and how calls are spread over them."""

from typing import Final

from envoy.config.cluster.v3 import cluster_pb2 as pb
from envoy.config.cluster.v3 import outlier_detection_pb2
from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as options_pb

from authplane.core.problems import Problems
from authplane.dataplane.config.clusters import AggregateOf, Cluster, Discovery, DnsEndpoint, EdsEndpoints
from authplane.dataplane.config.read.balancing import parse_balancing
from authplane.dataplane.config.read.common_parts import parse_ads_source, parse_duration, parse_endpoint, parse_packed
from authplane.dataplane.config.read.read_metadata import parse_metadata
from authplane.dataplane.config.read.tls_contexts import parse_client_tls
from authplane.dataplane.filters.registry import Scope

_DURATIONS: Final = frozenset({"interval", "base_ejection_time", "max_ejection_time"})
_PERCENTS: Final = frozenset(
    {
        "max_ejection_percent",
        "enforcing_success_rate",
        "enforcing_failure_percentage",
        "failure_percentage_threshold",
    }
)


def parse_cluster(message: pb.Cluster, scope: Scope, problems: Problems) -> Cluster | None:
    """Read a Cluster; None is a problem."""
    discovery = _parse_discovery(message, problems)
    balancing = parse_balancing(message, problems)
    tls = None
    if message.HasField("transport_socket"):
        with problems.at("transport_socket"):
            tls = parse_client_tls(message.transport_socket, scope, problems)
    if message.HasField("lrs_server") and not message.lrs_server.HasField("self"):
        with problems.at("lrs_server"):
            problems.add("SourceUnsupported", "The LRS server is not supported. Supported: self.")
    _check_outliers(message.outlier_detection, problems)
    _check_upstream_config(message, problems)
    with problems.at("metadata"):
        metadata = parse_metadata(message.metadata, problems)
    if discovery is None:
        return None
    return Cluster(
        name=message.name,
        discovery=discovery,
        balancing=balancing,
        most_requests=_most_requests(message),
        tls=tls,
        metadata=metadata,
    )


def _parse_discovery(message: pb.Cluster, problems: Problems) -> Discovery | None:
    match message.WhichOneof("cluster_discovery_type"), message.type:
        case "cluster_type", _:
            with problems.at("cluster_type", "typed_config"):
                return _parse_aggregate(message, problems)
        case "type", pb.Cluster.EDS:
            with problems.at("eds_cluster_config"):
                return _parse_eds(message, problems)
        case "type", pb.Cluster.LOGICAL_DNS:
            with problems.at("load_assignment", "endpoints"):
                return _parse_dns(message, problems)
        case _:
            with problems.at("type"):
                problems.add(
                    "DiscoveryUnsupported",
                    "The discovery type is not supported. Supported: EDS, LOGICAL_DNS, aggregate clusters.",
                )
            return None


def _parse_eds(message: pb.Cluster, problems: Problems) -> EdsEndpoints | None:
    config = message.eds_cluster_config
    with problems.at("eds_config"):
        parse_ads_source(config.eds_config, problems)
    if not config.service_name and message.name.startswith("xdstp:"):
        with problems.at("service_name"):
            problems.add(
                "NameMissing", "service_name has no default for a cluster with an xdstp name. Set service_name."
            )
    return EdsEndpoints(config.service_name or message.name)


def _parse_dns(message: pb.Cluster, problems: Problems) -> DnsEndpoint | None:
    localities = message.load_assignment.endpoints
    if len(localities) != 1:
        problems.add("EndpointsInvalid", f"The cluster has {len(localities)} localities. Set exactly one.")
        return None
    endpoints = localities[0].lb_endpoints
    with problems.at(0, "lb_endpoints"):
        if len(endpoints) != 1:
            problems.add("EndpointsInvalid", f"The cluster has {len(endpoints)} endpoints. Set exactly one.")
            return None
        with problems.at(0, "endpoint", "address"):
            return _parse_dns_name(endpoints[0].endpoint.address, problems)


def _parse_dns_name(message: address_pb2.Address, problems: Problems) -> DnsEndpoint | None:
    found = parse_endpoint(message, problems)
    if found is None:
        return None
    before = problems.error_count
    with problems.at("socket_address"):
        if message.socket_address.resolver_name:
            with problems.at("resolver_name"):
                problems.add("Unsupported", "resolver_name is not supported. Remove it.")
        if not found.address:
            with problems.at("address"):
                problems.add("Missing", "This field is required. Add it.")
        if message.socket_address.WhichOneof("port_specifier") != "port_value":
            with problems.at("port_value"):
                problems.add("Missing", "This field is required. Add it.")
    if problems.error_count != before:
        return None
    host = f"[{found.address}]" if ":" in found.address else found.address
    return DnsEndpoint(f"{host}:{found.port}")


def _parse_aggregate(message: pb.Cluster, problems: Problems) -> AggregateOf | None:
    config = parse_packed(aggregate_pb.ClusterConfig, message.cluster_type.typed_config, problems)
    if config is None:
        return None
    if not config.clusters:
        with problems.at("clusters"):
            problems.add("Missing", "The list of clusters is empty. Add a cluster.")
        return None
    return AggregateOf(tuple(config.clusters))


def _most_requests(message: pb.Cluster) -> int:
    for threshold in message.circuit_breakers.thresholds:
        if threshold.priority == base_pb2.DEFAULT:
            return threshold.max_requests.value if threshold.HasField("max_requests") else 1024
    return 1024


def _check_outliers(message: outlier_detection_pb2.OutlierDetection, problems: Problems) -> None:
    for field, value in message.ListFields():
        with problems.at("outlier_detection", field.name):
            if field.name in _DURATIONS:
                parse_duration(value, problems)
            elif field.name in _PERCENTS and value.value > 100:
                problems.add("OutOfRange", "The percentage is greater than 100. Use 100 or less.")


def _check_upstream_config(message: pb.Cluster, problems: Problems) -> None:
    if not message.HasField("upstream_config"):
        return
    with problems.at("upstream_config", "typed_config"):
        options = parse_packed(options_pb.HttpProtocolOptions, message.upstream_config.typed_config, problems)
        if options is not None and options.common_http_protocol_options.HasField("idle_timeout"):
            with problems.at("common_http_protocol_options", "idle_timeout"):
                parse_duration(options.common_http_protocol_options.idle_timeout, problems)
