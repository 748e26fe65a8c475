"""Resources for gRPC servers and channels, as messages."""

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message
from tests.support.grpc.xds_routes import routes, served

TEMPLATE = "server/%s"
_INSECURE = "type.googleapis.com/envoy.extensions.grpc_service.channel_credentials.insecure.v3.InsecureCredentials"


def packed(message: Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(message)
    return made


def name_of(resource: Message) -> str:
    return str(getattr(resource, "cluster_name", "") or getattr(resource, "name", ""))


def http_filter(name: str, config: Message, **more: Any) -> hcm_pb2.HttpFilter:
    return hcm_pb2.HttpFilter(name=name, typed_config=packed(config), **more)


ROUTER = http_filter("router", router_pb2.Router())


def ext_authz(target: str, **more: Any) -> hcm_pb2.HttpFilter:
    """Return the filter, with a service in plain text."""
    config = ext_authz_pb2.ExtAuthz(**more)
    google = config.grpc_service.google_grpc
    google.target_uri = target
    google.channel_credentials_plugin.add(type_url=_INSECURE)
    config.grpc_service.timeout.seconds = 1
    return http_filter("authz", config)


def manager(
    *filters: hcm_pb2.HttpFilter, inline: route_pb2.RouteConfiguration | None = None, rds: str = ""
) -> hcm_pb2.HttpConnectionManager:
    made = hcm_pb2.HttpConnectionManager(http_filters=[*filters, ROUTER])
    if rds:
        made.rds.route_config_name = rds
        made.rds.config_source.ads.SetInParent()
    else:
        made.route_config.CopyFrom(inline if inline is not None else routes("inline", served()))
    return made


def listener(
    port: int, made: hcm_pb2.HttpConnectionManager, host: str = "127.0.0.1", **chain: Any
) -> listener_pb2.Listener:
    """Return the Listener of a server."""
    network = listener_components_pb2.Filter(name="hcm", typed_config=packed(made))
    return listener_pb2.Listener(
        name=TEMPLATE % f"{host}:{port}",
        address=_address(host, port),
        filter_chains=[listener_components_pb2.FilterChain(filters=[network], **chain)],
    )


def api_listener(name: str, made: hcm_pb2.HttpConnectionManager) -> listener_pb2.Listener:
    """Return the Listener of a client."""
    resource = listener_pb2.Listener(name=name)
    resource.api_listener.api_listener.CopyFrom(packed(made))
    return resource


def cluster(name: str, **more: Any) -> cluster_pb2.Cluster:
    made = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS, **more)
    made.eds_cluster_config.eds_config.ads.SetInParent()
    return made


def endpoints(name: str, *priorities: tuple[int, ...]) -> endpoint_pb2.ClusterLoadAssignment:
    """Return endpoints by their ports; those of one tuple are at one priority."""
    made = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    for priority, ports in enumerate(priorities):
        locality = made.endpoints.add(priority=priority)
        locality.load_balancing_weight.value = 1
        locality.locality.region = f"r{priority}"
        for port in ports:
            endpoint = endpoint_components_pb2.Endpoint(address=_address("127.0.0.1", port))
            locality.lb_endpoints.add(endpoint=endpoint)
    return made


def _address(host: str, port: int) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=port))
