"""Clusters and their endpoints."""

from datetime import timedelta
from typing import Final, assert_never

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.base.timeouts import After, Disabled, Timeout, UseDefault
from authplane.graph.upstreams import (
    Balancing,
    Cluster,
    EndpointGroup,
    ExtensionCluster,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    UnverifiedTls,
    UpstreamTls,
    VerifiedTls,
)
from authplane.render.wrap import FROM_ADS, duration, pack, socket_address

_CONNECT_TIMEOUT: Final = timedelta(seconds=2)
_BUFFER_LIMIT: Final = 32 * 1024
_HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LB_POLICIES: Final = {
    Balancing.ROUND_ROBIN: cluster_pb2.Cluster.LbPolicy.ROUND_ROBIN,
    Balancing.RANDOM: cluster_pb2.Cluster.LbPolicy.RANDOM,
    Balancing.LEAST_REQUEST: cluster_pb2.Cluster.LbPolicy.LEAST_REQUEST,
}


def render_cluster(cluster: Cluster) -> cluster_pb2.Cluster:
    """Render a cluster whose endpoints come over EDS under the cluster's own name."""
    message = cluster_pb2.Cluster(
        name=cluster.name,
        alt_stat_name=cluster.name.replace("/", "_"),
        type=cluster_pb2.Cluster.DiscoveryType.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=FROM_ADS, service_name=cluster.name),
        connect_timeout=duration(_CONNECT_TIMEOUT),
        per_connection_buffer_limit_bytes=UInt32Value(value=_BUFFER_LIMIT),
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold=percent_pb2.Percent(value=0)),
    )
    match cluster:
        case ServiceCluster():
            pass
        case ExtensionCluster():
            message.lb_policy = _LB_POLICIES[cluster.balancing]
            # Without this Envoy ignores the weights of localities.
            message.common_lb_config.locality_weighted_lb_config.SetInParent()
        case _:
            assert_never(cluster)
    message.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(
        pack(_http_options(http2=cluster.version is HttpVersion.HTTP2, idle=cluster.idle_connection_timeout))
    )
    _add_tls(message, cluster.tls)
    return message


def render_endpoints(cluster: Cluster) -> endpoint_pb2.ClusterLoadAssignment:
    """Render the endpoints of a cluster: a locality for each Service."""
    groups = [each for each in cluster.destinations if isinstance(each, EndpointGroup) and each.endpoints]
    return endpoint_pb2.ClusterLoadAssignment(
        cluster_name=cluster.name, endpoints=[_locality(group) for group in groups]
    )


def _locality(group: EndpointGroup) -> endpoint_components_pb2.LocalityLbEndpoints:
    return endpoint_components_pb2.LocalityLbEndpoints(
        locality=base_pb2.Locality(sub_zone=str(group.service)),
        # No weight is no load, which is what a weight of zero among others asks for.
        load_balancing_weight=UInt32Value(value=group.weight) if group.weight else None,
        lb_endpoints=[
            endpoint_components_pb2.LbEndpoint(
                endpoint=endpoint_components_pb2.Endpoint(address=socket_address(each.address, each.port))
            )
            for each in group.endpoints
        ],
    )


def _http_options(*, http2: bool, idle: Timeout) -> http_protocol_options_pb2.HttpProtocolOptions:
    explicit = http_protocol_options_pb2.HttpProtocolOptions.ExplicitHttpConfig()
    if http2:
        explicit.http2_protocol_options.SetInParent()
    else:
        explicit.http_protocol_options.SetInParent()
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


def _add_tls(message: cluster_pb2.Cluster, tls: UpstreamTls) -> None:
    if isinstance(tls, Plaintext):
        return
    message.transport_socket.CopyFrom(
        base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(_tls_context(tls)))
    )


def _tls_context(tls: UnverifiedTls | VerifiedTls) -> tls_pb2.UpstreamTlsContext:
    common = tls_pb2.CommonTlsContext(
        alpn_protocols=["h2"],
        tls_params=common_pb2.TlsParameters(
            tls_minimum_protocol_version=common_pb2.TlsParameters.TlsProtocol.TLSv1_2,
            tls_maximum_protocol_version=common_pb2.TlsParameters.TlsProtocol.TLSv1_3,
        ),
    )
    match tls:
        case UnverifiedTls():
            return tls_pb2.UpstreamTlsContext(common_tls_context=common)
        case VerifiedTls(ca=ca, subject_names=names, server_name=server_name):
            common.validation_context.CopyFrom(_validation(ca, names))
            return tls_pb2.UpstreamTlsContext(common_tls_context=common, sni=server_name)
        case _:
            assert_never(tls)


def _validation(ca: bytes, names: tuple[str, ...]) -> common_pb2.CertificateValidationContext:
    return common_pb2.CertificateValidationContext(
        trusted_ca=base_pb2.DataSource(inline_bytes=ca),
        match_typed_subject_alt_names=[
            common_pb2.SubjectAltNameMatcher(
                san_type=common_pb2.SubjectAltNameMatcher.SanType.DNS, matcher=string_pb2.StringMatcher(exact=name)
            )
            for name in names
        ],
    )
