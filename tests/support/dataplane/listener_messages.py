"""Listeners and their filters, as messages."""

from typing import Any

from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from tests.support.dataplane.filter_messages import packed, router
from tests.support.dataplane.route_messages import routes_here, routes_to


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
