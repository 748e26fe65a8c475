"""Clusters and endpoints, as messages."""

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from tests.support.dataplane.listener_messages import address, ads


def eds_cluster(name: str = "cluster", **kwargs: Any) -> cluster_pb2.Cluster:
    kwargs.setdefault("eds_cluster_config", cluster_pb2.Cluster.EdsClusterConfig(eds_config=ads()))
    return cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS, **kwargs)


def lb_endpoint(host_name: str = "10.0.0.1", port: int = 80, **kwargs: Any) -> endpoint_components_pb2.LbEndpoint:
    inner = endpoint_components_pb2.Endpoint(address=address(host_name, port))
    return endpoint_components_pb2.LbEndpoint(endpoint=inner, **kwargs)


def locality(
    *endpoints: endpoint_components_pb2.LbEndpoint, zone: str = "a", weight: int = 1, priority: int = 0
) -> endpoint_components_pb2.LocalityLbEndpoints:
    made = endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=endpoints, priority=priority)
    made.locality.zone = zone
    made.load_balancing_weight.value = weight
    return made


def assignment(
    *localities: endpoint_components_pb2.LocalityLbEndpoints, name: str = "cluster"
) -> endpoint_pb2.ClusterLoadAssignment:
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)
