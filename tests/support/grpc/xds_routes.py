"""Routes for gRPC servers and channels, as messages."""

from typing import Any

from envoy.config.route.v3 import route_components_pb2, route_pb2


def served(domain: str = "*", prefix: str = "/", **more: Any) -> route_components_pb2.VirtualHost:
    """Return a virtual host whose calls are answered by the server."""
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix=prefix),
        non_forwarding_action=route_components_pb2.NonForwardingAction(),
        **more,
    )
    return route_components_pb2.VirtualHost(name=domain, domains=[domain], routes=[route])


def forwarded(cluster: str, domain: str = "*", **more: Any) -> route_components_pb2.VirtualHost:
    """Return a virtual host whose calls go to a cluster."""
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix="/"),
        route=route_components_pb2.RouteAction(cluster=cluster),
        **more,
    )
    return route_components_pb2.VirtualHost(name=domain, domains=[domain], routes=[route])


def routes(name: str, *hosts: route_components_pb2.VirtualHost) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=hosts)
