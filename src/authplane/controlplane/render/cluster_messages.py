"""Clusters and their endpoints."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, assert_never

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import (
    address_pb2,
    base_pb2,
    extension_pb2,
    health_check_pb2,
    protocol_pb2,
    resolver_pb2,
)
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.controlplane.graph.model.upstreams import (
    NO_BREAKERS,
    Balancing,
    Breakers,
    CaFile,
    Cluster,
    EndpointGroup,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    SocketFile,
    UnverifiedTls,
    UpstreamTls,
    VerifiedTls,
)
from authplane.controlplane.render.envoy_pieces import FROM_ADS, TLS_VERSIONS, duration, pack, socket_address
from authplane.core.addresses import parse_ip_address
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault

_CONNECT_TIMEOUT: Final = timedelta(seconds=2)
_LONGEST_CONNECT: Final = timedelta(days=1)
"""The value of "no limit": Envoy requires a limit."""
_KEEPALIVE: Final = protocol_pb2.KeepaliveSettings(
    interval=duration(timedelta(seconds=1)), timeout=duration(timedelta(seconds=1))
)
_HEALTH_INTERVAL: Final = timedelta(seconds=1)
_HEALTH_TIMEOUT: Final = timedelta(seconds=1)
_BUFFER_LIMIT: Final = 32 * 1024
_NO_SEARCH: Final = extension_pb2.TypedExtensionConfig(
    name="envoy.network.dns_resolver.cares",
    typed_config=pack(
        cares_dns_resolver_pb2.CaresDnsResolverConfig(
            dns_resolver_options=resolver_pb2.DnsResolverOptions(no_default_search_domain=True)
        )
    ),
)
"""Looks a name up as it is: with search domains, ``a.b`` would be the Service ``a`` of the namespace ``b``."""
_HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LB_POLICIES: Final = {
    Balancing.ROUND_ROBIN: cluster_pb2.Cluster.LbPolicy.ROUND_ROBIN,
    Balancing.RANDOM: cluster_pb2.Cluster.LbPolicy.RANDOM,
    Balancing.LEAST_REQUEST: cluster_pb2.Cluster.LbPolicy.LEAST_REQUEST,
}


def render_cluster(cluster: Cluster) -> cluster_pb2.Cluster:
    """Render a cluster; its endpoints come over EDS under its own name, or by DNS."""
    message = cluster_pb2.Cluster(
        name=cluster.name,
        alt_stat_name=cluster.name.replace("/", "_"),
        connect_timeout=duration(_connect_timeout(cluster.connect_timeout)),
        per_connection_buffer_limit_bytes=UInt32Value(value=_BUFFER_LIMIT),
        lb_policy=_LB_POLICIES[cluster.balancing],
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold=percent_pb2.Percent(value=0)),
        circuit_breakers=_circuit_breakers(cluster.breakers),
        transport_socket=_transport_socket(cluster.tls, cluster.version),
    )
    _add_discovery(message, cluster)
    if isinstance(cluster, ExtensionCluster):
        # Without this Envoy ignores the weights of localities.
        message.common_lb_config.locality_weighted_lb_config.SetInParent()
        if cluster.health_checks:
            message.health_checks.append(_health_check(cluster.authority))
            message.outlier_detection.CopyFrom(_outlier_detection())
    message.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(
        pack(_http_options(cluster.version, cluster.idle_connection_timeout, keepalive=_keeps_alive(cluster)))
    )
    return message


def has_endpoints(cluster: Cluster) -> bool:
    """Tell whether the proxy gets endpoints over xDS; otherwise it resolves names, or connects to a socket file."""
    return all(isinstance(each, EndpointGroup) for each in cluster.destinations)


def _add_discovery(message: cluster_pb2.Cluster, cluster: Cluster) -> None:
    kinds = cluster_pb2.Cluster.DiscoveryType
    if not has_endpoints(cluster):
        names = [each for each in cluster.destinations if isinstance(each, ExternalName)]
        message.type = kinds.STRICT_DNS if names else kinds.STATIC
        if any(each.ipv4_first for each in names):
            message.dns_lookup_family = cluster_pb2.Cluster.DnsLookupFamily.V4_PREFERRED
        if any(not each.searched for each in names):
            message.typed_dns_resolver_config.CopyFrom(_NO_SEARCH)
        message.load_assignment.CopyFrom(render_endpoints(cluster))
    else:
        message.type = kinds.EDS
        message.eds_cluster_config.CopyFrom(
            cluster_pb2.Cluster.EdsClusterConfig(eds_config=FROM_ADS, service_name=cluster.name)
        )


def render_endpoints(cluster: Cluster) -> endpoint_pb2.ClusterLoadAssignment:
    """Render where a cluster leads: a locality for each Service."""
    localities = []
    seen: Counter[str] = Counter()
    for each in cluster.destinations:
        addresses = _addresses(each)
        # What has no weight gets no load, and stays out: Envoy would use it when all others are empty.
        if addresses and each.weight:
            seen[str(each.service)] += 1
            localities.append(_locality(_sub_zone(each.service, seen[str(each.service)]), each.weight, addresses))
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=cluster.name, endpoints=localities)


def _addresses(destination: EndpointGroup | ExternalName | SocketFile) -> tuple[address_pb2.Address, ...]:
    match destination:
        case EndpointGroup(endpoints=endpoints):
            return tuple(socket_address(each.address, each.port) for each in endpoints)
        case ExternalName(host=host, port=port):
            return (socket_address(host, port),)
        case SocketFile(path=path):
            return (address_pb2.Address(pipe=address_pb2.Pipe(path=path)),)
        case _:
            assert_never(destination)


def _sub_zone(service: ObjectName, occurrence: int) -> str:
    """Name a locality: one Service may have several, with other ports, and Envoy keeps one weight for a name."""
    return str(service) if occurrence == 1 else f"{service}#{occurrence}"


def _locality(
    name: str, weight: int, addresses: Iterable[address_pb2.Address]
) -> endpoint_components_pb2.LocalityLbEndpoints:
    return endpoint_components_pb2.LocalityLbEndpoints(
        locality=base_pb2.Locality(sub_zone=name),
        load_balancing_weight=UInt32Value(value=weight),
        lb_endpoints=[
            endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address))
            for address in addresses
        ],
    )


def _health_check(authority: str) -> health_check_pb2.HealthCheck:
    """Check health over gRPC, as often with traffic as without: the first request must not find a failed server."""
    interval = duration(_HEALTH_INTERVAL)
    return health_check_pb2.HealthCheck(
        timeout=duration(_HEALTH_TIMEOUT),
        interval=interval,
        no_traffic_interval=interval,
        unhealthy_threshold=UInt32Value(value=1),
        healthy_threshold=UInt32Value(value=1),
        grpc_health_check=health_check_pb2.HealthCheck.GrpcHealthCheck(authority=authority),
    )


def _outlier_detection() -> outlier_detection_pb2.OutlierDetection:
    """Exclude a server between two health checks if its connections fail or it answers with gateway errors."""
    return outlier_detection_pb2.OutlierDetection(
        consecutive_gateway_failure=UInt32Value(value=3),
        enforcing_consecutive_gateway_failure=UInt32Value(value=100),
        consecutive_5xx=UInt32Value(value=5),
        interval=duration(timedelta(seconds=1)),
        base_ejection_time=duration(timedelta(seconds=2)),
        max_ejection_time=duration(timedelta(seconds=10)),
        # Never all of them: the last one may still answer.
        max_ejection_percent=UInt32Value(value=50),
    )


def _connect_timeout(timeout: Timeout) -> timedelta:
    match timeout:
        case UseDefault():
            return _CONNECT_TIMEOUT
        case Disabled():
            return _LONGEST_CONNECT
        case After(after):
            return after
        case _:
            assert_never(timeout)


def _circuit_breakers(breakers: Breakers) -> circuit_breaker_pb2.CircuitBreakers | None:
    """Render limits; those that are zero are left to Envoy."""
    if breakers == NO_BREAKERS:
        return None
    thresholds = circuit_breaker_pb2.CircuitBreakers.Thresholds
    return circuit_breaker_pb2.CircuitBreakers(
        thresholds=[
            thresholds(
                max_connections=_limit(breakers.connections),
                max_pending_requests=_limit(breakers.pending_requests),
                max_requests=_limit(breakers.requests),
                max_retries=_limit(breakers.retries),
                track_remaining=True,
            )
        ],
        per_host_thresholds=[
            thresholds(max_connections=_limit(breakers.connections_per_host), track_remaining=True),
        ],
    )


def _limit(value: int) -> UInt32Value | None:
    return UInt32Value(value=value) if value else None


def _keeps_alive(cluster: Cluster) -> bool:
    return isinstance(cluster, ExtensionCluster) and cluster.keepalive


def _http_options(
    version: HttpVersion, idle: Timeout, *, keepalive: bool
) -> http_protocol_options_pb2.HttpProtocolOptions:
    explicit = http_protocol_options_pb2.HttpProtocolOptions.ExplicitHttpConfig()
    match version:
        case HttpVersion.HTTP1:
            explicit.http_protocol_options.SetInParent()
        case HttpVersion.HTTP2:
            explicit.http2_protocol_options.SetInParent()
            if keepalive:
                explicit.http2_protocol_options.connection_keepalive.CopyFrom(_KEEPALIVE)
        case _:
            assert_never(version)
    options = http_protocol_options_pb2.HttpProtocolOptions(explicit_http_config=explicit)
    match idle:
        case UseDefault():
            pass
        case Disabled():
            options.common_http_protocol_options.idle_timeout.CopyFrom(duration(timedelta()))
        case After(after):
            options.common_http_protocol_options.CopyFrom(
                protocol_pb2.HttpProtocolOptions(idle_timeout=duration(after))
            )
        case _:
            assert_never(idle)
    return options


def _transport_socket(tls: UpstreamTls, version: HttpVersion) -> base_pb2.TransportSocket | None:
    match tls:
        case Plaintext():
            return None
        case UnverifiedTls() | VerifiedTls():
            context = _tls_context(tls, version)
            return base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(context))
        case _:
            assert_never(tls)


def _tls_context(tls: UnverifiedTls | VerifiedTls, version: HttpVersion) -> tls_pb2.UpstreamTlsContext:
    common = tls_pb2.CommonTlsContext(
        # Servers take a client that does not negotiate for one that speaks HTTP/1.1.
        alpn_protocols=["h2"] if version is HttpVersion.HTTP2 else [],
        tls_params=common_pb2.TlsParameters(
            tls_minimum_protocol_version=TLS_VERSIONS[tls.limits.minimum],
            tls_maximum_protocol_version=TLS_VERSIONS[tls.limits.maximum],
            cipher_suites=tls.limits.ciphers,
            ecdh_curves=tls.limits.curves,
        ),
    )
    if tls.client_certificate is not None:
        common.tls_certificate_sds_secret_configs.add(name=str(tls.client_certificate), sds_config=FROM_ADS)
    if isinstance(tls, VerifiedTls):
        common.validation_context.CopyFrom(_validation(tls.ca, tls.subject_names))
    # RFC 6066 §3: a server name is never an IP address.
    sni = "" if parse_ip_address(tls.server_name) is not None else tls.server_name
    return tls_pb2.UpstreamTlsContext(common_tls_context=common, sni=sni)


def _validation(ca: bytes | CaFile, names: tuple[str, ...]) -> common_pb2.CertificateValidationContext:
    kinds = common_pb2.SubjectAltNameMatcher.SanType
    source = base_pb2.DataSource(filename=ca.path) if isinstance(ca, CaFile) else base_pb2.DataSource(inline_bytes=ca)
    return common_pb2.CertificateValidationContext(
        trusted_ca=source,
        match_typed_subject_alt_names=[
            common_pb2.SubjectAltNameMatcher(
                san_type=kinds.DNS if parse_ip_address(name) is None else kinds.IP_ADDRESS,
                matcher=string_pb2.StringMatcher(exact=name),
            )
            for name in names
        ],
    )
