"""Envoy's bootstrap: one that connects to a control plane, and one that contains everything."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TypeAlias, assert_never

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import (
    address_pb2,
    backoff_pb2,
    base_pb2,
    config_source_pb2,
    extension_pb2,
    grpc_service_pb2,
    protocol_pb2,
)
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.overload.v3 import overload_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.resource_monitors.downstream_connections.v3 import downstream_connections_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf.struct_pb2 import Struct

from authplane.controlplane.graph.model.envoy_regexes import LARGEST_PROGRAM
from authplane.controlplane.render.control_tls import ClientFiles, client_tls
from authplane.controlplane.render.envoy_pieces import FROM_ADS, duration, pack, socket_address
from authplane.controlplane.render.rendered import Rendered
from authplane.controlplane.render.stat_tags import stats_config
from authplane.controlplane.render.stats_listener import admin_cluster, stats_listener
from authplane.core.values import dataclass

_ADS_CLUSTER: Final = "authplane-control"
_CONNECTIONS: Final = 50_000


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """A socket in the file system."""

    path: str


@dataclass(frozen=True, slots=True)
class Tcp:
    """A host and a port."""

    host: str
    port: int


Where: TypeAlias = UnixSocket | Tcp


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The address of the xDS server, and how Envoy connects to it."""

    where: Where
    delta: bool = False
    tls: ClientFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPages:
    """Where Envoy serves its admin interface, and readiness and metrics to others."""

    admin: Where
    stats: Tcp | None = None
    """Serves /ready and /stats/prometheus without authentication, for probes and Prometheus."""


def ads_bootstrap(control: ControlPlane, *, node: str, pages: AdminPages | None = None) -> bootstrap_pb2.Bootstrap:
    """Build the start-up configuration of an Envoy that gets everything over ADS."""
    api_type = config_source_pb2.ApiConfigSource.ApiType
    return bootstrap_pb2.Bootstrap(
        node=base_pb2.Node(id=node, cluster="authplane"),
        admin=bootstrap_pb2.Admin(address=_address(pages.admin)) if pages else None,
        overload_manager=_overload_manager(),
        layered_runtime=_runtime(),
        stats_config=stats_config(),
        static_resources=_static_resources(control, pages),
        dynamic_resources=bootstrap_pb2.Bootstrap.DynamicResources(
            lds_config=FROM_ADS,
            cds_config=FROM_ADS,
            ads_config=config_source_pb2.ApiConfigSource(
                api_type=api_type.DELTA_GRPC if control.delta else api_type.GRPC,
                transport_api_version=config_source_pb2.ApiVersion.V3,
                grpc_services=[
                    grpc_service_pb2.GrpcService(
                        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(
                            cluster_name=_ADS_CLUSTER, retry_policy=_reconnects()
                        )
                    )
                ],
                set_node_on_first_message_only=True,
            ),
        ),
    )


def _static_resources(control: ControlPlane, pages: AdminPages | None) -> bootstrap_pb2.Bootstrap.StaticResources:
    found = bootstrap_pb2.Bootstrap.StaticResources(clusters=[_control_cluster(control)])
    if pages is not None and pages.stats is not None:
        found.listeners.append(stats_listener(_address(pages.stats)))
        found.clusters.append(admin_cluster(_address(pages.admin)))
    return found


def _reconnects() -> base_pb2.RetryPolicy:
    """Limit the pause between attempts to reach the control plane: left to itself, Envoy waits up to 30 seconds."""
    return base_pb2.RetryPolicy(
        retry_back_off=backoff_pb2.BackoffStrategy(
            base_interval=duration(timedelta(milliseconds=200)), max_interval=duration(timedelta(seconds=2))
        )
    )


def _overload_manager() -> overload_pb2.OverloadManager:
    """Limit what clients can open at a time: without it Envoy takes connections until it runs out of something."""
    limit = downstream_connections_pb2.DownstreamConnectionsConfig(max_active_downstream_connections=_CONNECTIONS)
    monitor = overload_pb2.ResourceMonitor(
        name="envoy.resource_monitors.global_downstream_max_connections", typed_config=pack(limit)
    )
    return overload_pb2.OverloadManager(resource_monitors=[monitor])


def _runtime() -> bootstrap_pb2.LayeredRuntime:
    """Allow regular expressions of the size that the graph allows: Envoy would refuse more than 100 instructions."""
    limits = Struct()
    limits.update({"re2.max_program_size.error_level": LARGEST_PROGRAM})
    return bootstrap_pb2.LayeredRuntime(layers=[bootstrap_pb2.RuntimeLayer(name="authplane", static_layer=limits)])


def _control_cluster(control: ControlPlane) -> cluster_pb2.Cluster:
    options = http_protocol_options_pb2.HttpProtocolOptions()
    keepalive = protocol_pb2.KeepaliveSettings(
        interval=duration(timedelta(seconds=5)), timeout=duration(timedelta(seconds=5))
    )
    options.explicit_http_config.http2_protocol_options.CopyFrom(
        protocol_pb2.Http2ProtocolOptions(connection_keepalive=keepalive)
    )
    cluster = cluster_pb2.Cluster(
        name=_ADS_CLUSTER,
        type=_discovery(control.where),
        connect_timeout=duration(timedelta(seconds=2)),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=_ADS_CLUSTER,
            endpoints=[
                endpoint_components_pb2.LocalityLbEndpoints(
                    lb_endpoints=[
                        endpoint_components_pb2.LbEndpoint(
                            endpoint=endpoint_components_pb2.Endpoint(address=_address(control.where))
                        )
                    ]
                )
            ],
        ),
    )
    cluster.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].CopyFrom(
        pack(options)
    )
    if control.tls is not None:
        cluster.transport_socket.CopyFrom(
            base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(client_tls(control.tls)))
        )
    return cluster


def _discovery(where: Where) -> cluster_pb2.Cluster.DiscoveryType.ValueType:
    kinds = cluster_pb2.Cluster.DiscoveryType
    return kinds.STRICT_DNS if isinstance(where, Tcp) else kinds.STATIC


def _address(where: Where) -> address_pb2.Address:
    match where:
        case UnixSocket(path):
            return address_pb2.Address(pipe=address_pb2.Pipe(path=path, mode=0o600))
        case Tcp(host, port):
            return socket_address(host, port)
        case _:
            assert_never(where)


def static_bootstrap(rendered: Rendered) -> bootstrap_pb2.Bootstrap:
    """Build a configuration that Envoy runs by itself: the same resources, each where another refers to it."""
    routes = {message.name: message for message in rendered.routes}
    endpoints = {message.cluster_name: message for message in rendered.endpoints}
    extensions = {message.name: message for message in rendered.extensions}
    return bootstrap_pb2.Bootstrap(
        node=base_pb2.Node(id="authplane-static", cluster="authplane"),
        overload_manager=_overload_manager(),
        layered_runtime=_runtime(),
        stats_config=stats_config(),
        static_resources=bootstrap_pb2.Bootstrap.StaticResources(
            listeners=[_static_listener(listener, routes, extensions) for listener in rendered.listeners],
            clusters=[_static_cluster(cluster, endpoints) for cluster in rendered.clusters],
            secrets=rendered.secrets,
        ),
    )


def _static_cluster(
    cluster: cluster_pb2.Cluster, endpoints: Mapping[str, endpoint_pb2.ClusterLoadAssignment]
) -> cluster_pb2.Cluster:
    static = cluster_pb2.Cluster()
    static.CopyFrom(cluster)
    if cluster.type == cluster_pb2.Cluster.DiscoveryType.EDS:
        static.ClearField("eds_cluster_config")
        static.type = cluster_pb2.Cluster.DiscoveryType.STATIC
        static.load_assignment.CopyFrom(endpoints[cluster.name])
    tls = tls_pb2.UpstreamTlsContext()
    if static.transport_socket.typed_config.Unpack(tls):
        _use_static_secrets(tls.common_tls_context)
        static.transport_socket.typed_config.CopyFrom(pack(tls))
    return static


def _static_listener(
    listener: listener_pb2.Listener,
    routes: Mapping[str, route_pb2.RouteConfiguration],
    extensions: Mapping[str, extension_pb2.TypedExtensionConfig],
) -> listener_pb2.Listener:
    static = listener_pb2.Listener()
    static.CopyFrom(listener)
    for chain in static.filter_chains:
        manager = hcm_pb2.HttpConnectionManager()
        chain.filters[0].typed_config.Unpack(manager)
        manager.route_config.CopyFrom(routes[manager.rds.route_config_name])
        for each in manager.http_filters:
            if each.HasField("config_discovery"):
                each.typed_config.CopyFrom(extensions[each.name].typed_config)
        chain.filters[0].typed_config.CopyFrom(pack(manager))
        tls = tls_pb2.DownstreamTlsContext()
        if chain.transport_socket.typed_config.Unpack(tls):
            _use_static_secrets(tls.common_tls_context)
            chain.transport_socket.typed_config.CopyFrom(pack(tls))
    return static


def _use_static_secrets(tls: tls_pb2.CommonTlsContext) -> None:
    for secret in tls.tls_certificate_sds_secret_configs:
        secret.ClearField("sds_config")  # a secret without a source is one of the static ones
