"""Decodes received resources into values, or into all of their problems."""

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from authplane.core.problems import Problems
from authplane.dataplane.config.clusters import Cluster, ClusterEndpoints
from authplane.dataplane.config.listeners import Listener
from authplane.dataplane.config.read.read_clusters import parse_cluster
from authplane.dataplane.config.read.read_endpoints import parse_cluster_endpoints
from authplane.dataplane.config.read.read_listeners import parse_listener
from authplane.dataplane.config.read.read_routes import parse_route_configuration
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.extensions.wire import parse_message
from authplane.dataplane.filters.registry import Scope
from authplane.xds.client.watched_types import Invalid


def decode_listener(data: bytes, scope: Scope) -> Listener | Invalid:
    """Read a Listener; the side of the scope does not matter, as a Listener says itself which it is for."""
    problems = Problems()
    message = parse_message(listener_pb2.Listener, data, problems)
    if message is None:
        return Invalid(name=None, problems=problems.errors)
    made = parse_listener(message, scope, problems)
    return made if made is not None and not problems.errors else _invalid(message.name, problems)


def decode_routes(data: bytes, scope: Scope) -> RouteConfiguration | Invalid:
    """Read a RouteConfiguration."""
    problems = Problems()
    message = parse_message(route_pb2.RouteConfiguration, data, problems)
    if message is None:
        return Invalid(name=None, problems=problems.errors)
    made = parse_route_configuration(message, scope, problems)
    return _invalid(message.name, problems) if problems.errors else made


def decode_cluster(data: bytes, scope: Scope) -> Cluster | Invalid:
    """Read a Cluster."""
    problems = Problems()
    message = parse_message(cluster_pb2.Cluster, data, problems)
    if message is None:
        return Invalid(name=None, problems=problems.errors)
    made = parse_cluster(message, scope, problems)
    return made if made is not None and not problems.errors else _invalid(message.name, problems)


def decode_endpoints(data: bytes, _: Scope) -> ClusterEndpoints | Invalid:
    """Read a ClusterLoadAssignment."""
    problems = Problems()
    message = parse_message(endpoint_pb2.ClusterLoadAssignment, data, problems)
    if message is None:
        return Invalid(name=None, problems=problems.errors)
    made = parse_cluster_endpoints(message, problems)
    return _invalid(message.cluster_name, problems) if problems.errors else made


def _invalid(name: str, problems: Problems) -> Invalid:
    return Invalid(name=name, problems=problems.errors)
