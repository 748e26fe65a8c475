"""Resources of which grpcio's own xDS client and ours are both asked whether they take them."""

from typing import Any, Final, NamedTuple

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, config_source_pb2, extension_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.gcp_authn.v3 import gcp_authn_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from envoy.extensions.load_balancing_policies.pick_first.v3 import pick_first_pb2
from envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.extensions.load_balancing_policies.wrr_locality.v3 import wrr_locality_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.type.matcher.v3 import metadata_pb2, regex_pb2, string_pb2
from envoy.type.v3 import percent_pb2, range_pb2
from google.protobuf import any_pb2, duration_pb2, json_format, struct_pb2, wrappers_pb2
from google.protobuf.message import Message
from tests.support.dataplane.cluster_messages import assignment, eds_cluster, lb_endpoint, locality
from tests.support.dataplane.filter_messages import http_filter, packed, router
from tests.support.dataplane.listener_messages import (
    address,
    ads,
    api_listener,
    chain,
    cidr,
    manager,
    matching,
    rds,
    server_listener,
    serving,
)
from tests.support.dataplane.route_messages import here, host, route, route_config, routes_here, to_cluster, weighted
from udpa.type.v1 import typed_struct_pb2 as udpa_pb
from xds.type.v3 import typed_struct_pb2 as xds_pb


class Case(NamedTuple):
    resource: Message
    taken: bool
    """Whether grpcio takes it."""
    ours: bool | None = None
    """Whether we do, if that differs."""


def _match(**kwargs: Any) -> route_pb2.RouteConfiguration:
    return route_config(host(to_cluster("c", match=pb.RouteMatch(**kwargs))))


def _header(**kwargs: Any) -> route_pb2.RouteConfiguration:
    return _match(prefix="", headers=[pb.HeaderMatcher(**{"name": "x", **kwargs})])


def _action(**kwargs: Any) -> route_pb2.RouteConfiguration:
    return route_config(host(route(route=pb.RouteAction(**kwargs))))


def _override(value: any_pb2.Any | Message, key: str = "fault") -> route_pb2.RouteConfiguration:
    config = value if isinstance(value, any_pb2.Any) else packed(value)
    return route_config(host(to_cluster("c", typed_per_filter_config={key: config})))


def _typed(url: str, value: bytes = b"") -> any_pb2.Any:
    return any_pb2.Any(type_url=url, value=value)


def _struct(package: Any, url: str) -> any_pb2.Any:
    return packed(package.TypedStruct(type_url=url))


def _filters(*filters: hcm_pb.HttpFilter) -> listener_pb2.Listener:
    return api_listener(manager(*filters))


def _chains(*matches: listener_components_pb2.FilterChainMatch) -> listener_pb2.Listener:
    return server_listener(*(chain(filter_chain_match=each) for each in matches))


def _tls(context: Message) -> base_pb2.TransportSocket:
    return base_pb2.TransportSocket(name="tls", typed_config=packed(context))


def _server_tls(**kwargs: Any) -> listener_pb2.Listener:
    return server_listener(chain(transport_socket=_tls(tls_pb2.DownstreamTlsContext(**kwargs))))


def _client_tls(**kwargs: Any) -> cluster_pb2.Cluster:
    common = tls_pb2.CommonTlsContext(validation_context=common_pb2.CertificateValidationContext(**kwargs))
    return eds_cluster(transport_socket=_tls(tls_pb2.UpstreamTlsContext(common_tls_context=common)))


def _endpoint(**kwargs: Any) -> endpoint_components_pb2.LbEndpoint:
    return endpoint_components_pb2.LbEndpoint(**kwargs)


def _rules(**policy: Any) -> rbac_pb2.RBAC:
    made = rbac_pb2.RBAC()
    json_format.ParseDict({"rules": {"policies": {"p": policy}}}, made)
    return made


def _provider(name: str = "own") -> Any:
    return {"instance_name": name}


def _policy(*configs: Message) -> cluster_pb2.LoadBalancingPolicy:
    made = cluster_pb2.LoadBalancingPolicy()
    for config in configs:
        made.policies.add(
            typed_extension_config=extension_pb2.TypedExtensionConfig(name="x", typed_config=packed(config))
        )
    return made


def _dns(*endpoints: endpoint_components_pb2.LbEndpoint) -> cluster_pb2.Cluster:
    return cluster_pb2.Cluster(type=cluster_pb2.Cluster.LOGICAL_DNS, load_assignment=assignment(locality(*endpoints)))


def _aggregate(*names: str) -> cluster_pb2.Cluster:
    kind = cluster_pb2.Cluster.CustomClusterType(
        name="aggregate", typed_config=packed(aggregate_pb.ClusterConfig(clusters=names))
    )
    return cluster_pb2.Cluster(cluster_type=kind)


def _drops(*drops: Any) -> endpoint_pb2.ClusterLoadAssignment:
    made = assignment(locality(lb_endpoint()))
    made.policy.drop_overloads.extend(endpoint_pb2.ClusterLoadAssignment.Policy.DropOverload(**each) for each in drops)
    return made


FAULT: Final = fault_pb2.HTTPFault()
RBAC: Final = rbac_pb2.RBAC()
PORT_RANGE: Final = _rules(permissions=[{"destination_port_range": {"start": 1, "end": 2}}], principals=[{"any": True}])
UNKNOWN: Final = _typed("type.googleapis.com/test.Unknown")
ROUTER_URL: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
BAD: Final = _typed("type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", b"\xff")
LONG: Final = duration_pb2.Duration(seconds=315_576_000_001)
NEGATIVE: Final = duration_pb2.Duration(nanos=-1)


CLIENT_LISTENERS: Final = {
    "a router alone": Case(_filters(router()), taken=True),
    "a filter before the router": Case(_filters(http_filter("fault", FAULT), router()), taken=True),
    "no filters": Case(api_listener(hcm_pb.HttpConnectionManager(rds=rds("r"))), taken=False),
    "only an optional unknown filter": Case(_filters(http_filter("x", UNKNOWN, is_optional=True)), taken=False),
    "an optional unknown filter before the router": Case(
        _filters(http_filter("x", UNKNOWN, is_optional=True), router()), taken=True
    ),
    "an unknown filter": Case(_filters(http_filter("x", UNKNOWN), router()), taken=False),
    "a filter of servers": Case(_filters(http_filter("rbac", RBAC), router()), taken=False),
    "an optional filter of servers": Case(_filters(http_filter("rbac", RBAC, is_optional=True), router()), taken=True),
    "a name twice": Case(_filters(http_filter("x", FAULT), http_filter("x", FAULT), router()), taken=False),
    "no name": Case(_filters(http_filter("", FAULT), router()), taken=False),
    "no configuration": Case(_filters(hcm_pb.HttpFilter(name="x"), router()), taken=False),
    "no configuration of an optional filter": Case(
        _filters(hcm_pb.HttpFilter(name="x", is_optional=True), router()), taken=False
    ),
    "a type URL that is empty": Case(_filters(http_filter("x", _typed("")), router()), taken=False),
    "a type URL without a slash": Case(_filters(http_filter("x", _typed("test.Unknown")), router()), taken=False),
    "a type URL without a name": Case(_filters(http_filter("x", _typed("test.Unknown/")), router()), taken=False),
    "unreadable configuration": Case(_filters(http_filter("x", BAD), router()), taken=False),
    "unreadable configuration of an optional filter": Case(
        _filters(http_filter("x", BAD, is_optional=True), router()), taken=False
    ),
    "the router is not last": Case(_filters(router(), http_filter("fault", FAULT)), taken=False),
    "no router": Case(_filters(http_filter("fault", FAULT)), taken=False),
    "two routers": Case(_filters(router("a"), router("b")), taken=False),
    "a TypedStruct of xds for a filter that needs its message": Case(
        _filters(http_filter("router", _struct(xds_pb, ROUTER_URL))), taken=False
    ),
    "a TypedStruct of udpa for a filter that needs its message": Case(
        _filters(http_filter("router", _struct(udpa_pb, ROUTER_URL))), taken=False
    ),
    "a TypedStruct of an unknown type": Case(
        _filters(http_filter("x", _struct(xds_pb, "a/test.Unknown")), router()), taken=False
    ),
    "an optional TypedStruct of an unknown type": Case(
        _filters(http_filter("x", _struct(xds_pb, "a/test.Unknown"), is_optional=True), router()), taken=True
    ),
    "a TypedStruct without a type": Case(
        _filters(http_filter("x", _struct(xds_pb, ""), is_optional=True), router()), taken=False
    ),
    "trusted hops": Case(api_listener(manager(xff_num_trusted_hops=1)), taken=False),
    "detection of the original address": Case(
        api_listener(
            manager(
                original_ip_detection_extensions=[extension_pb2.TypedExtensionConfig(name="x", typed_config=UNKNOWN)]
            )
        ),
        taken=False,
    ),
    "routes from a stream of their own": Case(
        api_listener(manager(rds=hcm_pb.Rds(route_config_name="r", config_source=ads()))), taken=True
    ),
    "routes from a file": Case(
        api_listener(
            manager(rds=hcm_pb.Rds(route_config_name="r", config_source=config_source_pb2.ConfigSource(path="/r")))
        ),
        taken=False,
    ),
    "routes from nowhere": Case(api_listener(manager(rds=hcm_pb.Rds(route_config_name="r"))), taken=False),
    "routes without a name": Case(api_listener(manager(rds=rds(""))), taken=True, ours=False),
    "no routes at all": Case(api_listener(hcm_pb.HttpConnectionManager(http_filters=[router()])), taken=False),
    "scoped routes": Case(
        api_listener(hcm_pb.HttpConnectionManager(http_filters=[router()], scoped_routes=hcm_pb.ScopedRoutes())),
        taken=False,
    ),
    "bad routes inside": Case(api_listener(manager(route_config=route_config(host(domains=())))), taken=False),
    "a stream duration that is too long": Case(
        api_listener(manager(common_http_protocol_options={"max_stream_duration": LONG})), taken=False
    ),
    "neither address nor API listener": Case(listener_pb2.Listener(), taken=False),
    "both address and API listener": Case(
        listener_pb2.Listener(address=address(), api_listener=api_listener().api_listener), taken=True
    ),
    "an API listener without a manager": Case(
        listener_pb2.Listener(api_listener=api_listener_pb2.ApiListener(api_listener=packed(router_pb2.Router()))),
        taken=False,
    ),
    "an empty API listener": Case(listener_pb2.Listener(api_listener=api_listener_pb2.ApiListener()), taken=False),
}

SERVER_LISTENERS: Final = {
    "one chain": Case(server_listener(), taken=True),
    "routes of their own": Case(server_listener(chain(serving(rds=rds("r")))), taken=True),
    "a filter of servers": Case(server_listener(chain(serving(http_filter("rbac", RBAC), router()))), taken=True),
    "a rule on a range of ports": Case(
        server_listener(chain(serving(http_filter("rbac", PORT_RANGE), router()))), taken=False, ours=True
    ),
    "a filter of clients": Case(server_listener(chain(serving(http_filter("fault", FAULT), router()))), taken=False),
    "an optional filter of clients": Case(
        server_listener(chain(serving(http_filter("fault", FAULT, is_optional=True), router()))), taken=True
    ),
    "no chains": Case(listener_pb2.Listener(address=address()), taken=False),
    "only a default chain": Case(listener_pb2.Listener(address=address(), default_filter_chain=chain()), taken=True),
    "a bad default chain": Case(
        server_listener(default_filter_chain=listener_components_pb2.FilterChain()), taken=False
    ),
    "original destinations": Case(server_listener(use_original_dst=wrappers_pb2.BoolValue(value=True)), taken=False),
    "listener filters": Case(
        server_listener(listener_filters=[listener_components_pb2.ListenerFilter(name="x", typed_config=UNKNOWN)]),
        taken=True,
        ours=False,
    ),
    "no network filter": Case(server_listener(listener_components_pb2.FilterChain()), taken=False),
    "two network filters": Case(
        server_listener(listener_components_pb2.FilterChain(filters=[*chain().filters, *chain().filters])), taken=False
    ),
    "another network filter": Case(
        server_listener(
            listener_components_pb2.FilterChain(
                filters=[listener_components_pb2.Filter(name="x", typed_config=packed(router_pb2.Router()))]
            )
        ),
        taken=False,
    ),
    "an address of UDP": Case(
        server_listener(
            address=address_pb2.Address(
                socket_address=address_pb2.SocketAddress(
                    address="127.0.0.1", port_value=1, protocol=address_pb2.SocketAddress.UDP
                )
            )
        ),
        taken=False,
    ),
    "a port that is none": Case(server_listener(address=address(port=65536)), taken=False),
    "an address that is a pipe": Case(
        server_listener(address=address_pb2.Address(pipe=address_pb2.Pipe(path="/x"))), taken=False
    ),
    "chains that match the same": Case(_chains(matching(), matching()), taken=False),
    "chains for different sources": Case(
        _chains(matching(source_prefix_ranges=[cidr("10.0.0.0", 8)]), matching()), taken=True
    ),
    "ranges that are the same without their low bits": Case(
        _chains(matching(prefix_ranges=[cidr("10.0.0.1", 8)]), matching(prefix_ranges=[cidr("10.9.9.9", 8)])),
        taken=False,
    ),
    "a range twice in one chain": Case(
        _chains(matching(prefix_ranges=[cidr("10.0.0.1", 8), cidr("10.0.0.2", 8)])), taken=False
    ),
    "ranges that are clamped to the same": Case(
        _chains(matching(prefix_ranges=[cidr("10.0.0.1", 32)]), matching(prefix_ranges=[cidr("10.0.0.1", 99)])),
        taken=False,
    ),
    "a range without a length and one of length 0": Case(
        _chains(matching(prefix_ranges=[cidr("10.0.0.1")]), matching(prefix_ranges=[cidr("0.0.0.0", 0)])), taken=False
    ),
    "products that overlap": Case(_chains(matching(source_ports=[1, 2]), matching(source_ports=[2, 3])), taken=False),
    "chains for server names, which never match": Case(
        _chains(matching(server_names=["a"]), matching(server_names=["a"]), matching()), taken=True
    ),
    "chains for ports, which never match": Case(
        _chains(
            matching(destination_port=wrappers_pb2.UInt32Value(value=1)),
            matching(destination_port=wrappers_pb2.UInt32Value(value=1)),
        ),
        taken=True,
    ),
    "a range that is no address": Case(_chains(matching(prefix_ranges=[cidr("ten", 8)])), taken=False),
    "a source range that is no address": Case(_chains(matching(source_prefix_ranges=[cidr("", 8)])), taken=False),
    "a raw buffer beside nothing": Case(_chains(matching(transport_protocol="raw_buffer"), matching()), taken=True),
    "a condition on direct sources": Case(
        _chains(matching(direct_source_prefix_ranges=[cidr("10.0.0.0", 8)])), taken=True, ours=False
    ),
    "TLS with a certificate": Case(
        _server_tls(common_tls_context={"tls_certificate_provider_instance": _provider()}), taken=True
    ),
    "TLS without a certificate": Case(_server_tls(), taken=False),
    "TLS with a provider that is unknown": Case(
        _server_tls(common_tls_context={"tls_certificate_provider_instance": _provider("other")}), taken=False
    ),
    "TLS with a certificate inside": Case(_server_tls(common_tls_context={"tls_certificates": [{}]}), taken=False),
    "TLS that asks clients without knowing whom to trust": Case(
        _server_tls(
            common_tls_context={"tls_certificate_provider_instance": _provider()},
            require_client_certificate=wrappers_pb2.BoolValue(value=True),
        ),
        taken=False,
    ),
    "TLS that asks clients": Case(
        _server_tls(
            common_tls_context={
                "tls_certificate_provider_instance": _provider(),
                "validation_context": {"ca_certificate_provider_instance": _provider()},
            },
            require_client_certificate=wrappers_pb2.BoolValue(value=True),
        ),
        taken=True,
    ),
    "TLS that matches names of clients": Case(
        _server_tls(
            common_tls_context={
                "tls_certificate_provider_instance": _provider(),
                "validation_context": {"match_subject_alt_names": [{"exact": "a"}]},
            }
        ),
        taken=False,
    ),
    "TLS that needs a server name": Case(
        _server_tls(
            common_tls_context={"tls_certificate_provider_instance": _provider()},
            require_sni=wrappers_pb2.BoolValue(value=True),
        ),
        taken=False,
    ),
    "TLS with staples": Case(
        _server_tls(
            common_tls_context={"tls_certificate_provider_instance": _provider()},
            ocsp_staple_policy=tls_pb2.DownstreamTlsContext.MUST_STAPLE,
        ),
        taken=False,
    ),
    "another transport": Case(server_listener(chain(transport_socket=_tls(router_pb2.Router()))), taken=False),
    "bad routes inside": Case(
        server_listener(chain(serving(route_config=route_config(host(domains=()))))), taken=False
    ),
    "good routes inside": Case(server_listener(chain(serving(route_config=routes_here()))), taken=True),
}

ROUTES: Final = {
    "one route": Case(route_config(host(to_cluster("c"))), taken=True),
    "no virtual hosts": Case(route_config(), taken=True),
    "no routes": Case(route_config(host()), taken=True),
    "no domains": Case(route_config(host(domains=())), taken=False),
    "an empty domain": Case(route_config(host(domains=("",))), taken=False),
    "a wildcard in the middle": Case(route_config(host(domains=("a*b",))), taken=False),
    "wildcards at both ends": Case(route_config(host(domains=("*a*",))), taken=True, ours=False),
    "a wildcard at one end": Case(route_config(host(domains=("*.a", "a.*"))), taken=True),
    "a domain twice": Case(route_config(host(domains=("a", "*")), host(domains=("a",))), taken=True),
    "no match": Case(route_config(host(pb.Route(route=pb.RouteAction(cluster="c")))), taken=False),
    "no path": Case(_match(), taken=False),
    "a path of segments": Case(_match(path_separated_prefix="/a"), taken=False),
    "a tunnel": Case(_match(connect_matcher=pb.RouteMatch.ConnectMatcher()), taken=False),
    "a bad expression": Case(_match(safe_regex=regex_pb2.RegexMatcher(regex="(")), taken=False),
    "an empty expression": Case(_match(safe_regex=regex_pb2.RegexMatcher()), taken=True, ours=False),
    "a path that no call has": Case(_match(path="a"), taken=True),
    "a prefix that no call has": Case(_match(prefix="a"), taken=True),
    "a query": Case(_match(query_parameters=[pb.QueryParameterMatcher(name="x")]), taken=True),
    "a path of another case": Case(_match(path="/A/B", case_sensitive=wrappers_pb2.BoolValue(value=False)), taken=True),
    "an exact header": Case(_header(exact_match="a"), taken=True),
    "a header of nothing": Case(_header(), taken=False),
    "a header without a name": Case(_header(name="", exact_match="a"), taken=True, ours=False),
    "a header with a bad expression": Case(_header(safe_regex_match=regex_pb2.RegexMatcher(regex="[")), taken=False),
    "a header in a range": Case(_header(range_match=range_pb2.Int64Range(start=1, end=2)), taken=True),
    "a header in a range that ends before it starts": Case(
        _header(range_match=range_pb2.Int64Range(start=2, end=1)), taken=False
    ),
    "a header that is present": Case(_header(present_match=True), taken=True),
    "a header with an empty prefix": Case(_header(prefix_match=""), taken=True, ours=False),
    "a header that may be missing": Case(
        _header(exact_match="", treat_missing_header_as_empty=True), taken=True, ours=False
    ),
    "a header with an empty matcher": Case(_header(string_match=string_pb2.StringMatcher()), taken=False),
    "a header with a matcher of another case": Case(
        _header(string_match=string_pb2.StringMatcher(prefix="a", ignore_case=True)), taken=True
    ),
    "a header with an expression of another case": Case(
        _header(string_match=string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex="a"), ignore_case=True)),
        taken=False,
    ),
    "a fraction": Case(_match(prefix="", runtime_fraction={"default_value": {"numerator": 1}}), taken=True),
    "a fraction without a value": Case(_match(prefix="", runtime_fraction={}), taken=True, ours=False),
    "a fraction of an unknown denominator": Case(
        _match(
            prefix="",
            runtime_fraction={"default_value": percent_pb2.FractionalPercent.FromString(b"\x08\x01\x10\x09")},
        ),
        taken=False,
    ),
    "a condition on metadata": Case(
        _match(prefix="", dynamic_metadata=[metadata_pb2.MetadataMatcher(filter="x")]), taken=True, ours=False
    ),
    "a condition on TLS": Case(_match(prefix="", tls_context={}), taken=True, ours=False),
    "a condition on gRPC": Case(_match(prefix="", grpc={}), taken=True),
    "no action": Case(route_config(host(route())), taken=True),
    "a redirect": Case(route_config(host(route(redirect=pb.RedirectAction()))), taken=True),
    "an answer here": Case(route_config(host(here())), taken=True),
    "a cluster without a name": Case(_action(cluster=""), taken=False),
    "a cluster from a header": Case(_action(cluster_header="x"), taken=True),
    "no cluster": Case(_action(), taken=True),
    "weights": Case(route_config(host(weighted(("a", 1), ("b", 2)))), taken=True),
    "no weighted clusters": Case(route_config(host(weighted())), taken=False),
    "weights of nothing": Case(route_config(host(weighted(("a", 0)))), taken=False),
    "a weight of nothing beside another": Case(route_config(host(weighted(("a", 0), ("b", 1)))), taken=True),
    "a weight that is missing": Case(route_config(host(weighted(("a", None), ("b", 1)))), taken=False),
    "weights that are too much": Case(route_config(host(weighted(("a", 2**32 - 1), ("b", 1)))), taken=False),
    "a weighted cluster without a name": Case(route_config(host(weighted(("", 1)))), taken=False),
    "a plugin that is unknown": Case(_action(cluster_specifier_plugin="x"), taken=False),
    "a plugin that is not supported": Case(
        route_config(
            host(route(route=pb.RouteAction(cluster_specifier_plugin="x"))),
            cluster_specifier_plugins=[{"extension": {"name": "x", "typed_config": UNKNOWN}}],
        ),
        taken=False,
    ),
    "a plugin that is not supported and optional": Case(
        route_config(
            host(route(route=pb.RouteAction(cluster_specifier_plugin="x"))),
            cluster_specifier_plugins=[{"extension": {"name": "x", "typed_config": UNKNOWN}, "is_optional": True}],
        ),
        taken=True,
    ),
    "no retries": Case(
        _action(cluster="c", retry_policy={"num_retries": wrappers_pb2.UInt32Value(value=0)}), taken=False
    ),
    "retries without an interval": Case(_action(cluster="c", retry_policy={"retry_back_off": {}}), taken=False),
    "retries of a virtual host": Case(
        route_config(host(retry_policy={"num_retries": wrappers_pb2.UInt32Value(value=0)})), taken=False
    ),
    "a hash of a header without a name": Case(_action(cluster="c", hash_policy=[{"header": {}}]), taken=False),
    "a hash of a header with a bad expression": Case(
        _action(
            cluster="c",
            hash_policy=[{"header": {"header_name": "x", "regex_rewrite": {"pattern": {"regex": "("}}}}],
        ),
        taken=False,
    ),
    "a duration that is negative": Case(
        _action(cluster="c", max_stream_duration={"max_stream_duration": NEGATIVE}), taken=False
    ),
    "a duration that is too long": Case(
        _action(cluster="c", max_stream_duration={"grpc_timeout_header_max": LONG}), taken=False
    ),
    "an override": Case(_override(FAULT), taken=True),
    "an override of a filter of servers": Case(_override(rbac_pb2.RBACPerRoute(), "rbac"), taken=True),
    "an override of a filter that there is not": Case(_override(FAULT, "nobody"), taken=True),
    "an override without a name": Case(_override(FAULT, ""), taken=False),
    "an override of no type": Case(_override(any_pb2.Any(type_url="fault")), taken=False),
    "an unknown override": Case(_override(UNKNOWN), taken=False),
    "an unreadable override": Case(_override(BAD), taken=False),
    "a configuration as an override": Case(_override(RBAC, "rbac"), taken=False),
    "an override of a router": Case(_override(router_pb2.Router(), "router"), taken=False),
    "a wrapped override": Case(_override(pb.FilterConfig(config=packed(FAULT))), taken=True),
    "an empty wrapper": Case(_override(pb.FilterConfig()), taken=False),
    "an empty wrapper that disables a filter": Case(_override(pb.FilterConfig(disabled=True)), taken=False, ours=True),
    "a wrapped unknown override": Case(_override(pb.FilterConfig(config=UNKNOWN)), taken=False),
    "a wrapped unknown optional override": Case(
        _override(pb.FilterConfig(config=UNKNOWN, is_optional=True)), taken=True
    ),
    "a wrapped unreadable optional override": Case(
        _override(pb.FilterConfig(config=BAD, is_optional=True)), taken=False
    ),
    "a TypedStruct as an override": Case(
        _override(_struct(xds_pb, "a/envoy.extensions.filters.http.rbac.v3.RBACPerRoute")), taken=False
    ),
}

CLUSTERS: Final = {
    "endpoints from the stream": Case(eds_cluster(), taken=True),
    "endpoints from nowhere": Case(eds_cluster(eds_cluster_config=None), taken=False),
    "endpoints from a file": Case(
        eds_cluster(eds_cluster_config={"eds_config": config_source_pb2.ConfigSource(path="/x")}), taken=False
    ),
    "static endpoints": Case(cluster_pb2.Cluster(type=cluster_pb2.Cluster.STATIC), taken=False),
    "a name of DNS": Case(_dns(lb_endpoint("a.example")), taken=True),
    "a DNS name over UDP": Case(
        _dns(
            _endpoint(
                endpoint={"address": {"socket_address": {"address": "a.example", "port_value": 1, "protocol": "UDP"}}}
            )
        ),
        taken=True,
        ours=False,
    ),
    "two names of DNS": Case(_dns(lb_endpoint("a.example"), lb_endpoint("b.example")), taken=False),
    "no name of DNS": Case(cluster_pb2.Cluster(type=cluster_pb2.Cluster.LOGICAL_DNS), taken=False),
    "an empty name of DNS": Case(_dns(lb_endpoint("")), taken=False),
    "other clusters": Case(_aggregate("x"), taken=True),
    "no other clusters": Case(_aggregate(), taken=False),
    "a type of cluster that is unknown": Case(
        cluster_pb2.Cluster(cluster_type=cluster_pb2.Cluster.CustomClusterType(name="x", typed_config=UNKNOWN)),
        taken=False,
    ),
    "random balancing": Case(eds_cluster(lb_policy=cluster_pb2.Cluster.RANDOM), taken=False),
    "least requests": Case(eds_cluster(lb_policy=cluster_pb2.Cluster.LEAST_REQUEST), taken=False),
    "a ring": Case(eds_cluster(lb_policy=cluster_pb2.Cluster.RING_HASH), taken=True),
    "a ring that is too large": Case(
        eds_cluster(
            lb_policy=cluster_pb2.Cluster.RING_HASH,
            ring_hash_lb_config={"maximum_ring_size": wrappers_pb2.UInt64Value(value=8_388_609)},
        ),
        taken=False,
    ),
    "a ring of another hash": Case(
        eds_cluster(lb_policy=cluster_pb2.Cluster.RING_HASH, ring_hash_lb_config={"hash_function": "MURMUR_HASH_2"}),
        taken=False,
    ),
    "a policy": Case(eds_cluster(load_balancing_policy=_policy(round_robin_pb2.RoundRobin())), taken=True),
    "the first policy that is known": Case(
        eds_cluster(load_balancing_policy=_policy(router_pb2.Router(), pick_first_pb2.PickFirst())), taken=True
    ),
    "no policy that is known": Case(eds_cluster(load_balancing_policy=_policy(router_pb2.Router())), taken=False),
    "an empty policy": Case(eds_cluster(load_balancing_policy=_policy()), taken=False),
    "a policy of localities": Case(
        eds_cluster(
            load_balancing_policy=_policy(
                wrr_locality_pb2.WrrLocality(endpoint_picking_policy=_policy(round_robin_pb2.RoundRobin()))
            )
        ),
        taken=True,
    ),
    "a policy of localities of nothing": Case(
        eds_cluster(load_balancing_policy=_policy(wrr_locality_pb2.WrrLocality())), taken=False
    ),
    "a policy with a bad ring": Case(
        eds_cluster(
            load_balancing_policy=_policy(ring_hash_pb2.RingHash(minimum_ring_size=wrappers_pb2.UInt64Value(value=0)))
        ),
        taken=False,
    ),
    "load reports elsewhere": Case(eds_cluster(lrs_server=ads()), taken=False),
    "too many ejections": Case(
        eds_cluster(
            outlier_detection=outlier_detection_pb2.OutlierDetection(
                max_ejection_percent=wrappers_pb2.UInt32Value(value=101)
            )
        ),
        taken=False,
    ),
    "ejections after a negative time": Case(
        eds_cluster(outlier_detection=outlier_detection_pb2.OutlierDetection(interval=NEGATIVE)), taken=False
    ),
    "circuit breakers": Case(
        eds_cluster(
            circuit_breakers=circuit_breaker_pb2.CircuitBreakers(
                thresholds=[
                    circuit_breaker_pb2.CircuitBreakers.Thresholds(max_requests=wrappers_pb2.UInt32Value(value=5))
                ]
            )
        ),
        taken=True,
    ),
    "TLS without roots": Case(eds_cluster(transport_socket=_tls(tls_pb2.UpstreamTlsContext())), taken=False),
    "TLS with roots": Case(_client_tls(ca_certificate_provider_instance=_provider()), taken=True),
    "TLS that verifies the requested name": Case(
        eds_cluster(
            transport_socket=_tls(
                tls_pb2.UpstreamTlsContext(
                    common_tls_context=tls_pb2.CommonTlsContext(
                        validation_context=common_pb2.CertificateValidationContext(
                            ca_certificate_provider_instance=_provider()
                        )
                    ),
                    sni="a.example",
                    auto_sni_san_validation=True,
                )
            )
        ),
        taken=True,
        ours=False,
    ),
    "TLS with typed subject names": Case(
        _client_tls(
            ca_certificate_provider_instance=_provider(),
            match_typed_subject_alt_names=[{"san_type": "DNS", "matcher": {"exact": "a"}}],
        ),
        taken=True,
        ours=False,
    ),
    "metadata": Case(
        eds_cluster(
            metadata=base_pb2.Metadata(
                filter_metadata={"a": struct_pb2.Struct(fields={"b": struct_pb2.Value(string_value="c")})},
                typed_filter_metadata={"d": UNKNOWN},
            )
        ),
        taken=True,
    ),
    "metadata with an empty audience": Case(
        eds_cluster(metadata=base_pb2.Metadata(typed_filter_metadata={"a": packed(gcp_authn_pb2.Audience())})),
        taken=False,
    ),
    "metadata that is no JSON": Case(
        eds_cluster(
            metadata=base_pb2.Metadata(
                filter_metadata={"a": struct_pb2.Struct(fields={"b": struct_pb2.Value(number_value=float("nan"))})}
            )
        ),
        taken=False,
    ),
}

ENDPOINTS: Final = {
    "one endpoint": Case(assignment(locality(lb_endpoint())), taken=True),
    "no endpoints": Case(assignment(), taken=True),
    "a locality without endpoints": Case(assignment(locality()), taken=True),
    "a locality without a weight": Case(assignment(locality(lb_endpoint("a"), weight=0)), taken=True),
    "a locality that has no name": Case(
        assignment(
            endpoint_components_pb2.LocalityLbEndpoints(load_balancing_weight=wrappers_pb2.UInt32Value(value=1))
        ),
        taken=False,
    ),
    "a locality twice": Case(assignment(locality(), locality()), taken=False),
    "a locality in two priorities": Case(assignment(locality(), locality(priority=1)), taken=True),
    "a priority that is missing": Case(assignment(locality(priority=1)), taken=False),
    "a host name": Case(assignment(locality(lb_endpoint("a.example"))), taken=False),
    "a port that is none": Case(assignment(locality(lb_endpoint(port=65536))), taken=False),
    "an address twice": Case(assignment(locality(lb_endpoint(), lb_endpoint())), taken=False),
    "an address of version 6 twice": Case(
        assignment(locality(lb_endpoint("::1"), lb_endpoint("0:0:0:0:0:0:0:1"))), taken=False
    ),
    "an endpoint without a weight": Case(
        assignment(locality(lb_endpoint(load_balancing_weight=wrappers_pb2.UInt32Value(value=0)))), taken=False
    ),
    "an endpoint of nothing": Case(assignment(locality(endpoint_components_pb2.LbEndpoint())), taken=False),
    "an endpoint that is ill": Case(assignment(locality(lb_endpoint(health_status="UNHEALTHY"))), taken=True),
    "an endpoint that is emptied and nowhere": Case(
        assignment(locality(_endpoint(health_status="DRAINING"))), taken=False
    ),
    "an endpoint that is ill and nowhere": Case(assignment(locality(_endpoint(health_status="UNHEALTHY"))), taken=True),
    "weights that are too much": Case(assignment(locality(weight=2**32 - 1), locality(zone="b")), taken=False),
    "a drop": Case(_drops({"category": "a", "drop_percentage": {"numerator": 1}}), taken=True),
    "a drop without a category": Case(_drops({"drop_percentage": {"numerator": 1}}), taken=False),
    "a drop of nothing": Case(_drops({"category": "a"}), taken=False),
}
