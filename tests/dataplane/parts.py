"""Filters of the tests' own, and messages to build resources from."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.message import DecodeError, Message

from authplane.core.problems import Problem
from authplane.dataplane.filters.calls import Call, Flow, Proceed, Side
from authplane.dataplane.filters.registry import (
    FilterConfig,
    FilterType,
    Packed,
    Registry,
    Scope,
    State,
    Structured,
    Trust,
)
from authplane.xds.bootstrap.credentials import TlsFiles

BOTH: Final = frozenset(Side)


@dataclass(frozen=True)
class Built:
    """A filter that shows what it was built from."""

    config: "Config"
    override: object | None
    counter: list[int] = field(default_factory=list, compare=False, hash=False)

    def run(self, call: Call) -> Flow:
        yield from ()
        return Proceed(metadata=call.metadata)


@dataclass(frozen=True)
class Config:
    """A configuration that is only known by its bytes."""

    type_name: str
    value: bytes | str
    side: Side = Side.SERVER

    def build(self, state: State, override: object | None) -> Built:
        return Built(self, override, state.kept.of(self, list))


@dataclass(frozen=True)
class OverrideConfig:
    """An override that is only known by its bytes."""

    value: bytes


def reading(message: type[Message]) -> Any:
    def parse(packed: Packed, scope: Scope) -> FilterConfig | tuple[Problem, ...]:
        try:
            message.FromString(packed.value)
        except DecodeError:
            return (Problem(("inside",), "Unreadable", "cannot be read"),)
        return Config(packed.type_name, packed.value, scope.side)

    return parse


def parse_structured(structured: Structured, scope: Scope) -> FilterConfig | tuple[Problem, ...]:
    return Config(structured.type_name, structured.json, scope.side)


def parse_override(packed: Packed, _: Scope) -> Hashable | tuple[Problem, ...]:
    if packed.value == b"\xff":
        return (Problem(("inside",), "Unreadable", "cannot be read"),)
    return OverrideConfig(packed.value)


def kind(message: type[Message], override: type[Message] | None = None, **kwargs: Any) -> FilterType:
    return FilterType(
        type_urls=(f"type.googleapis.com/{message.DESCRIPTOR.full_name}",),
        override_urls=() if override is None else (override.DESCRIPTOR.full_name,),
        parse=reading(message),
        parse_override=None if override is None else parse_override,
        **kwargs,
    )


ROUTER: Final = kind(router_pb2.Router, sides=BOTH, terminal=True)
FAULT: Final = kind(fault_pb2.HTTPFault, fault_pb2.HTTPFault, sides=frozenset({Side.CLIENT}))
RBAC: Final = kind(rbac_pb2.RBAC, rbac_pb2.RBACPerRoute, sides=frozenset({Side.SERVER}))
CUSTOM: Final = FilterType(
    type_urls=("example.com/test.Custom",),
    sides=BOTH,
    parse=lambda packed, scope: Config(packed.type_name, packed.value, scope.side),
    parse_structured=parse_structured,
)
REGISTRY: Final = Registry.of(ROUTER, FAULT, RBAC, CUSTOM)
TRUST: Final = Trust(certificate_providers={"own": TlsFiles()})
CLIENT: Final = Scope(side=Side.CLIENT, trust=TRUST, registry=REGISTRY)
SERVER: Final = Scope(side=Side.SERVER, trust=TRUST, registry=REGISTRY)


def packed(message: Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(message)
    return made


def http_filter(name: str, message: Message | any_pb2.Any, **kwargs: Any) -> hcm_pb.HttpFilter:
    config = message if isinstance(message, any_pb2.Any) else packed(message)
    return hcm_pb.HttpFilter(name=name, typed_config=config, **kwargs)


def router(name: str = "router") -> hcm_pb.HttpFilter:
    return http_filter(name, router_pb2.Router())


def ads() -> config_source_pb2.ConfigSource:
    source = config_source_pb2.ConfigSource()
    source.ads.SetInParent()
    return source


def rds(name: str) -> hcm_pb.Rds:
    return hcm_pb.Rds(route_config_name=name, config_source=ads())


def manager(*filters: hcm_pb.HttpFilter, **kwargs: Any) -> hcm_pb.HttpConnectionManager:
    """Return a manager with routes of its own, unless others are given."""
    if "rds" not in kwargs and "route_config" not in kwargs:
        kwargs["route_config"] = routes_to("cluster")
    return hcm_pb.HttpConnectionManager(http_filters=filters or (router(),), **kwargs)


def api_listener(held: hcm_pb.HttpConnectionManager | None = None, name: str = "listener") -> listener_pb2.Listener:
    inner = api_listener_pb2.ApiListener(api_listener=packed(held or manager()))
    return listener_pb2.Listener(name=name, api_listener=inner)


def address(host: str = "127.0.0.1", port: int = 8080) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=port))


def serving(*filters: hcm_pb.HttpFilter, **kwargs: Any) -> hcm_pb.HttpConnectionManager:
    """Return a manager for servers."""
    if "rds" not in kwargs and "route_config" not in kwargs:
        kwargs["route_config"] = routes_here()
    return manager(*filters, **kwargs)


def chain(held: hcm_pb.HttpConnectionManager | None = None, **kwargs: Any) -> listener_components_pb2.FilterChain:
    inner = listener_components_pb2.Filter(name="hcm", typed_config=packed(held or serving()))
    return listener_components_pb2.FilterChain(filters=[inner], **kwargs)


def matching(**kwargs: Any) -> listener_components_pb2.FilterChainMatch:
    return listener_components_pb2.FilterChainMatch(**kwargs)


def cidr(prefix: str, length: int | None = None) -> address_pb2.CidrRange:
    made = address_pb2.CidrRange(address_prefix=prefix)
    if length is not None:
        made.prefix_len.value = length
    return made


def server_listener(*chains: listener_components_pb2.FilterChain, **kwargs: Any) -> listener_pb2.Listener:
    kwargs.setdefault("name", "listener")
    kwargs.setdefault("address", address())
    return listener_pb2.Listener(filter_chains=chains or (chain(),), **kwargs)


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
