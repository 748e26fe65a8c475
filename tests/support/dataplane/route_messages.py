"""Routes, as messages."""

from typing import Any

from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from google.protobuf import wrappers_pb2


def route(prefix: str = "", **kwargs: Any) -> pb.Route:
    """Return a route that matches a prefix, unless it says otherwise, and does nothing unless it says what."""
    kwargs.setdefault("match", pb.RouteMatch(prefix=prefix))
    return pb.Route(**kwargs)


def to_cluster(cluster: str, prefix: str = "", **kwargs: Any) -> pb.Route:
    return route(prefix, route=pb.RouteAction(cluster=cluster), **kwargs)


def here(prefix: str = "", **kwargs: Any) -> pb.Route:
    return route(prefix, non_forwarding_action=pb.NonForwardingAction(), **kwargs)


def weighted(*clusters: tuple[str, int | None], **kwargs: Any) -> pb.Route:
    made = [
        pb.WeightedCluster.ClusterWeight(
            name=name, weight=None if weight is None else wrappers_pb2.UInt32Value(value=weight)
        )
        for name, weight in clusters
    ]
    return route(route=pb.RouteAction(weighted_clusters=pb.WeightedCluster(clusters=made)), **kwargs)


def host(*routes: pb.Route, domains: tuple[str, ...] = ("*",), **kwargs: Any) -> pb.VirtualHost:
    return pb.VirtualHost(name="host", domains=domains, routes=routes, **kwargs)


def route_config(*hosts: pb.VirtualHost, name: str = "routes", **kwargs: Any) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=hosts, **kwargs)


def routes_to(cluster: str) -> route_pb2.RouteConfiguration:
    return route_config(host(to_cluster(cluster)))


def routes_here() -> route_pb2.RouteConfiguration:
    return route_config(host(here()))
