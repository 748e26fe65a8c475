"""A listener that serves readiness and metrics of Envoy, and nothing else of its admin interface."""

from datetime import timedelta
from typing import Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.matcher.v3 import string_pb2

from authplane.controlplane.render.envoy_pieces import duration, pack

_LISTENER: Final = "authplane-stats"
_ADMIN_CLUSTER: Final = "authplane-admin"
_PAGES: Final = ("/ready", "/stats/prometheus")
"""The admin interface has others, such as /quitquitquit and /certs: these never leave the machine."""


def stats_listener(address: address_pb2.Address) -> listener_pb2.Listener:
    """Build the listener. It is not counted among the connections of clients, so that probes pass on a full Envoy."""
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=_LISTENER,
        route_config=route_pb2.RouteConfiguration(
            name=_LISTENER,
            virtual_hosts=[
                route_components_pb2.VirtualHost(
                    name=_LISTENER, domains=["*"], routes=[_route(path) for path in _PAGES]
                )
            ],
        ),
        http_filters=[hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=pack(router_pb2.Router()))],
    )
    named = listener_components_pb2.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=pack(manager)
    )
    return listener_pb2.Listener(
        name=_LISTENER,
        address=address,
        ignore_global_conn_limit=True,
        filter_chains=[listener_components_pb2.FilterChain(filters=[named])],
    )


def admin_cluster(address: address_pb2.Address) -> cluster_pb2.Cluster:
    """Build the cluster that leads to Envoy's own admin interface."""
    endpoint = endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address))
    return cluster_pb2.Cluster(
        name=_ADMIN_CLUSTER,
        type=cluster_pb2.Cluster.DiscoveryType.STATIC,
        connect_timeout=duration(timedelta(seconds=1)),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=_ADMIN_CLUSTER,
            endpoints=[endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=[endpoint])],
        ),
    )


def _route(path: str) -> route_components_pb2.Route:
    is_get = route_components_pb2.HeaderMatcher(name=":method", string_match=string_pb2.StringMatcher(exact="GET"))
    return route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(path=path, headers=[is_get]),
        route=route_components_pb2.RouteAction(cluster=_ADMIN_CLUSTER),
    )
