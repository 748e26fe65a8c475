"""Listeners read to values, with every problem."""

from ipaddress import ip_network
from typing import Any, Final

import pytest
from envoy.config.core.v3 import base_pb2, config_source_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from google.protobuf import duration_pb2, wrappers_pb2
from tests.support.dataplane.filter_messages import http_filter, packed, router
from tests.support.dataplane.listener_messages import (
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
from tests.support.dataplane.plain_filters import CLIENT, ROUTER, SERVER, Config

from authplane.dataplane.config.listeners import (
    ApiListener,
    ChainMatch,
    ConnectionManager,
    FilterChain,
    HttpFilter,
    Listener,
    RouteName,
    ServerListener,
    SourceType,
)
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.config.routes import NonForwarding, Route, RouteConfiguration, RouteMatch, VirtualHost
from authplane.dataplane.config.security import Provider, ServerTls
from authplane.dataplane.filters.calls import Endpoint, Side
from authplane.matching.string_matchers import Prefix
from authplane.xds.client.watched_types import Invalid

CHAIN: Final = "filter_chains[0]"


def decode(message: listener_pb2.Listener) -> Listener | list[str]:
    got = decode_listener(message.SerializeToString(), SERVER if message.HasField("address") else CLIENT)
    return [str(each) for each in got.problems] if isinstance(got, Invalid) else got


def held(side: Side, **kwargs: Any) -> ConnectionManager:
    config = Config("envoy.extensions.filters.http.router.v3.Router", b"", side)
    return ConnectionManager(filters=(HttpFilter(name="router", kind=ROUTER, config=config),), **kwargs)


ROUTES: Final = RouteConfiguration(
    name="routes",
    virtual_hosts=(
        VirtualHost(
            name="host", domains=("*",), routes=(Route(match=RouteMatch(path=Prefix("")), action=NonForwarding()),)
        ),
    ),
)


def test_a_listener_of_a_client_is_read_whole() -> None:
    options = {"max_stream_duration": duration_pb2.Duration(seconds=3)}
    message = api_listener(manager(rds=rds("r"), common_http_protocol_options=options), "name")
    assert decode(message) == ApiListener(name="name", manager=held(Side.CLIENT, routes=RouteName("r"), longest=3.0))


def test_a_listener_of_a_server_is_read_whole() -> None:
    match = matching(
        prefix_ranges=[cidr("10.1.2.3", 8)],
        source_type=listener_components_pb2.FilterChainMatch.EXTERNAL,
        source_prefix_ranges=[cidr("::1", 200), cidr("1.2.3.4")],
        source_ports=[1, 2],
        transport_protocol="raw_buffer",
    )
    message = server_listener(
        chain(filter_chain_match=match, name="one"), default_filter_chain=chain(serving(rds=rds("r")))
    )

    assert decode(message) == ServerListener(
        name="listener",
        address=Endpoint(address="127.0.0.1", port=8080),
        chains=(
            FilterChain(
                name="one",
                match=ChainMatch(
                    destinations=(ip_network("10.0.0.0/8"),),
                    raw_buffer=True,
                    source_type=SourceType.EXTERNAL,
                    sources=(ip_network("::1/128"), ip_network("0.0.0.0/0")),
                    source_ports=(1, 2),
                ),
                manager=held(Side.SERVER, routes=ROUTES),
            ),
        ),
        default_chain=FilterChain(manager=held(Side.SERVER, routes=RouteName("r"))),
    )


@pytest.mark.requirement("HF-23")
@pytest.mark.parametrize(
    ("routes", "problem"),
    [
        ({}, ": The routes are missing. Set route_config or rds. [RoutesMissing]"),
        (
            {"scoped_routes": hcm_pb.ScopedRoutes(name="x")},
            ": The routes are missing. Set route_config or rds. [RoutesMissing]",
        ),
        (
            {"rds": hcm_pb.Rds(route_config_name="r")},
            ".rds.config_source: The configuration source is not supported. Supported: ads, self. [SourceUnsupported]",
        ),
        (
            {"rds": hcm_pb.Rds(route_config_name="r", config_source=config_source_pb2.ConfigSource(path="/x"))},
            ".rds.config_source: The configuration source is not supported. Supported: ads, self. [SourceUnsupported]",
        ),
        (
            {"rds": hcm_pb.Rds(config_source=ads())},
            ".rds.route_config_name: The name is empty. Set a name. [NameMissing]",
        ),
    ],
)
def test_routes_are_inline_or_come_over_the_stream(routes: dict[str, Any], problem: str) -> None:
    message = hcm_pb.HttpConnectionManager(http_filters=[router()], **routes)
    assert decode(api_listener(message)) == [f"api_listener.api_listener{problem}"]


@pytest.mark.requirement("HF-23")
def test_routes_may_come_from_where_the_listener_came() -> None:
    source = config_source_pb2.ConfigSource()
    source.self.SetInParent()
    message = manager(rds=hcm_pb.Rds(route_config_name="r", config_source=source))
    assert decode(api_listener(message)) == ApiListener(
        name="listener", manager=held(Side.CLIENT, routes=RouteName("r"))
    )


@pytest.mark.requirement("SL-3")
@pytest.mark.parametrize(
    ("message", "problems"),
    [
        (
            server_listener(
                listener_filters=[
                    listener_components_pb2.ListenerFilter(name="x", typed_config=packed(router_pb2.Router()))
                ]
            ),
            ["listener_filters: listener_filters is not supported. Remove it. [Unsupported]"],
        ),
        (
            server_listener(use_original_dst=wrappers_pb2.BoolValue(value=True)),
            ["use_original_dst: use_original_dst is not supported. Remove it. [Unsupported]"],
        ),
        (
            server_listener(listener_components_pb2.FilterChain()),
            [
                f"{CHAIN}.filters: The chain does not have exactly one filter. Set one filter, an"
                " HttpConnectionManager. [FiltersInvalid]"
            ],
        ),
        (
            server_listener(listener_components_pb2.FilterChain(filters=[*chain().filters, *chain().filters])),
            [
                f"{CHAIN}.filters: The chain does not have exactly one filter. Set one filter, an"
                " HttpConnectionManager. [FiltersInvalid]",
                f"{CHAIN}.filters[1].name: Another filter has the name 'hcm'. Rename one of them. [NameDuplicate]",
            ],
        ),
        (
            server_listener(
                listener_components_pb2.FilterChain(
                    filters=[listener_components_pb2.Filter(name="x", typed_config=packed(router_pb2.Router()))]
                )
            ),
            [
                f"{CHAIN}.filters[0].typed_config.type_url: 'envoy.extensions.filters.http.router.v3.Router' is not "
                "supported here. Supported:"
                " envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager. "
                "[TypeUnsupported]"
            ],
        ),
        (
            server_listener(chain(serving(http_filter("x", router_pb2.Router()), router("x")))),
            [
                f"{CHAIN}.filters[0].typed_config.http_filters[1].name: Another filter has the name 'x'. Rename one"
                " of them. "
                "[NameDuplicate]",
                f"{CHAIN}.filters[0].typed_config.http_filters[0]: The filter ends the chain, but other"
                " filters follow. Move this filter to the end. "
                "[FilterOrder]",
            ],
        ),
        (
            server_listener(default_filter_chain=listener_components_pb2.FilterChain()),
            [
                "default_filter_chain.filters: The chain does not have exactly one filter. Set one filter, an"
                " HttpConnectionManager. [FiltersInvalid]"
            ],
        ),
        (
            listener_pb2.Listener(name="x", address=server_listener().address),
            [
                "default_filter_chain: The listener has no filter chain. Set filter_chains or default_filter_chain."
                " [ChainsMissing]"
            ],
        ),
    ],
)
def test_a_listener_of_a_server_is_refused(message: listener_pb2.Listener, problems: list[str]) -> None:
    assert decode(message) == problems


@pytest.mark.requirement("SL-3")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (matching(), matching()),
        (matching(prefix_ranges=[cidr("10.1.1.1", 8)]), matching(prefix_ranges=[cidr("10.0.0.0", 8)])),
        (matching(prefix_ranges=[cidr("10.1.1.1")]), matching(prefix_ranges=[cidr("0.0.0.0", 0)])),
        (matching(prefix_ranges=[cidr("10.1.1.1", 40)]), matching(prefix_ranges=[cidr("10.1.1.1", 32)])),
        (matching(source_ports=[1, 2]), matching(source_ports=[3, 2])),
        (
            matching(prefix_ranges=[cidr("1.0.0.0", 8), cidr("2.0.0.0", 8)], source_ports=[1, 2]),
            matching(prefix_ranges=[cidr("3.0.0.0", 8), cidr("2.0.0.0", 8)], source_ports=[2, 3]),
        ),
        (matching(transport_protocol="raw_buffer"), matching(transport_protocol="raw_buffer")),
    ],
)
def test_no_two_chains_match_the_same(one: Any, other: Any) -> None:
    got = decode(server_listener(chain(filter_chain_match=one), chain(filter_chain_match=other)))
    assert got == [
        "filter_chains[1].filter_chain_match: Filter chain 0 has the same conditions. Change or remove"
        " one of the two chains."
        " [MatchDuplicate]"
    ]


@pytest.mark.requirement("SL-3")
def test_a_chain_does_not_match_the_same_twice() -> None:
    match = matching(source_prefix_ranges=[cidr("10.0.0.1", 8), cidr("10.0.0.2", 8)])
    assert decode(server_listener(chain(filter_chain_match=match))) == [
        "filter_chains[0].filter_chain_match: Filter chain 0 has the same conditions. Change or remove"
        " one of the two chains."
        " [MatchDuplicate]"
    ]


def test_a_match_that_multiplies_out_to_too_much_is_refused_at_once() -> None:
    ranges = [cidr(f"10.{first}.{second}.0", 24) for first in range(10) for second in range(100)]
    match = matching(prefix_ranges=ranges, source_prefix_ranges=ranges, source_ports=range(1000))
    assert decode(server_listener(chain(filter_chain_match=match))) == [
        "filter_chains[0].filter_chain_match: The chains have more than 100000 combinations of conditions. Use fewer"
        " ranges or ports. [MatchTooLarge]"
    ]


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        (
            matching(prefix_ranges=[cidr("x", 1)]),
            "prefix_ranges[0].address_prefix: 'x' is not an IP address. Use an IPv4 or IPv6 address.",
        ),
        (
            matching(source_prefix_ranges=[cidr("1.2.3.4"), cidr("1.2.3", 1)]),
            "source_prefix_ranges[1].address_prefix: '1.2.3' is not an IP address. Use an IPv4 or IPv6 address.",
        ),
    ],
)
def test_a_range_is_of_an_address(match: Any, problem: str) -> None:
    assert decode(server_listener(chain(filter_chain_match=match))) == [
        f"{CHAIN}.filter_chain_match.{problem} [AddressInvalid]"
    ]


def test_an_unknown_type_of_source_is_rejected() -> None:
    match = listener_components_pb2.FilterChainMatch.FromString(b"\x60\x07")
    assert match.source_type == 7
    assert decode(server_listener(chain(filter_chain_match=match))) == [
        f"{CHAIN}.filter_chain_match.source_type: 7 is not a source type. Supported: ANY, SAME_IP_OR_LOOPBACK,"
        " EXTERNAL. [SourceTypeUnknown]"
    ]


def test_conditions_that_cannot_be_checked_are_refused() -> None:
    match = matching(direct_source_prefix_ranges=[cidr("10.0.0.0", 8)])
    assert decode(server_listener(chain(filter_chain_match=match))) == [
        f"{CHAIN}.filter_chain_match.direct_source_prefix_ranges: gRPC servers do not support this condition. Remove"
        " it. "
        "[MatchUnsupported]"
    ]


def tls(**kwargs: Any) -> base_pb2.TransportSocket:
    return base_pb2.TransportSocket(name="tls", typed_config=packed(tls_pb2.DownstreamTlsContext(**kwargs)))


def test_tls_of_a_server_names_its_certificates() -> None:
    common = {
        "tls_certificate_provider_instance": {"instance_name": "own", "certificate_name": "a"},
        "combined_validation_context": {
            "default_validation_context": {"ca_certificate_provider_instance": {"instance_name": "own"}}
        },
    }
    got = decode(
        server_listener(
            chain(
                transport_socket=tls(
                    common_tls_context=common, require_client_certificate=wrappers_pb2.BoolValue(value=True)
                )
            )
        )
    )
    assert isinstance(got, ServerListener)
    assert got.chains[0].tls == ServerTls(
        identity=Provider(instance="own", certificate="a"),
        roots=Provider(instance="own"),
        require_client_certificate=True,
    )


def test_every_problem_of_tls_is_reported() -> None:
    context = tls(
        common_tls_context={
            "tls_params": {},
            "tls_certificate_provider_instance": {"instance_name": "other"},
            "validation_context": {"system_root_certs": {}, "verify_certificate_hash": ["x"]},
        },
        require_sni=wrappers_pb2.BoolValue(value=True),
    )
    where = f"{CHAIN}.transport_socket.typed_config"
    assert decode(server_listener(chain(transport_socket=context))) == [
        f"{where}.common_tls_context.tls_params: The field is not supported. Remove it. [Unsupported]",
        f"{where}.common_tls_context.tls_certificate_provider_instance.instance_name: The bootstrap has no certificate "
        "provider 'other'. Add it to certificate_providers. [ProviderUnknown]",
        f"{where}.common_tls_context.validation_context.verify_certificate_hash: The field is not supported. Remove"
        " it. [Unsupported]",
        f"{where}.common_tls_context: system_root_certs is not supported on servers. Remove it. [RootsUnsupported]",
        f"{where}.require_sni: The field is not supported. Remove it. [Unsupported]",
    ]


def test_bytes_that_are_no_listener_are_refused_without_a_name() -> None:
    got = decode_listener(b"\xff", CLIENT)
    assert isinstance(got, Invalid)
    assert (got.name, [str(each) for each in got.problems]) == (
        None,
        ["Cannot decode the bytes. Expected envoy.config.listener.v3.Listener. [Unreadable]"],
    )
