"""RouteConfigurations read to values, with every problem."""

from typing import Any, Final

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from google.protobuf import any_pb2, duration_pb2, struct_pb2, wrappers_pb2
from tests.support.dataplane.plain_filters import CLIENT, SERVER
from tests.support.dataplane.route_messages import here, host, route, route_config, to_cluster, weighted

from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.metadata import JsonObject
from authplane.dataplane.config.read.decode_resource import decode_routes
from authplane.dataplane.config.routes import (
    Action,
    ClusterWeight,
    Forward,
    NonForwarding,
    Route,
    RouteConfiguration,
    RouteMatch,
    UnsupportedAction,
    VirtualHost,
)
from authplane.dataplane.filters.registry import Scope
from authplane.matching.fractions import Fraction
from authplane.matching.header_matchers import HeaderPresent, HeaderText
from authplane.matching.string_matchers import Exact, Prefix, StringMatcher, compile_regex
from authplane.xds.client.watched_types import Invalid

HERE: Final = "virtual_hosts[0].routes[0]"


def decode(message: route_pb2.RouteConfiguration, scope: Scope = CLIENT) -> RouteConfiguration | list[str]:
    got = decode_routes(message.SerializeToString(), scope)
    return [str(each) for each in got.problems] if isinstance(got, Invalid) else got


def routes_of(*routes: pb.Route, scope: Scope = CLIENT) -> tuple[Route, ...] | list[str]:
    got = decode(route_config(host(*routes)), scope)
    return got.virtual_hosts[0].routes if isinstance(got, RouteConfiguration) else got


def regex(pattern: str) -> Any:
    return compile_regex(pattern)


def test_a_configuration_is_read_whole() -> None:
    match = pb.RouteMatch(
        prefix="/a.B/",
        headers=[
            pb.HeaderMatcher(name="X", exact_match="1", invert_match=True),
            pb.HeaderMatcher(name="y", present_match=True),
        ],
        runtime_fraction={"default_value": {"numerator": 25}},  # type: ignore[arg-type]
    )
    metadata = base_pb2.Metadata(filter_metadata={"a": struct_pb2.Struct(fields={"b": struct_pb2.Value()})})
    metadata.filter_metadata["a"].fields["b"].string_value = "c"
    message = route_config(
        host(to_cluster("one", match=match, name="first", metadata=metadata), domains=("A.Example", "*.b")),
        host(here()),
        name="all",
    )
    assert decode(message) == RouteConfiguration(
        name="all",
        virtual_hosts=(
            VirtualHost(
                name="host",
                domains=("a.example", "*.b"),
                routes=(
                    Route(
                        name="first",
                        match=RouteMatch(
                            path=Prefix("/a.B/"),
                            headers=(
                                HeaderText(name="x", matcher=Exact("1"), inverted=True),
                                HeaderPresent(name="y", present=True),
                            ),
                            fraction=Fraction(250_000),
                        ),
                        action=Forward(clusters=(ClusterWeight(name="one"),)),
                        metadata=FrozenMap({"a": JsonObject(FrozenMap({"b": "c"}))}),
                    ),
                ),
            ),
            VirtualHost(
                name="host",
                domains=("*",),
                routes=(Route(match=RouteMatch(path=Prefix("")), action=NonForwarding()),),
            ),
        ),
    )


@pytest.mark.requirement("RT-1")
@pytest.mark.parametrize("domain", ["", "a*b", "*a*", "**", "a**", "*a*b"])
def test_a_wildcard_is_at_one_end(domain: str) -> None:
    assert decode(route_config(host(domains=("ok", domain)))) == [
        f"virtual_hosts[0].domains[1]: '{domain}' is not a domain. Use a domain with at most one wildcard,"
        " at its start or its end. [DomainInvalid]"
    ]


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize(
    ("match", "want"),
    [
        (pb.RouteMatch(prefix=""), Prefix("")),
        (pb.RouteMatch(prefix="/"), Prefix("/")),
        (pb.RouteMatch(prefix="/a/"), Prefix("/a/")),
        (pb.RouteMatch(path="/a/b"), Exact("/a/b")),
        (pb.RouteMatch(safe_regex={"regex": "/a/.*"}), regex("/a/.*")),  # type: ignore[arg-type]
        (
            pb.RouteMatch(path="/a/b", case_sensitive=wrappers_pb2.BoolValue(value=False)),
            Exact("/a/b", ignore_case=True),
        ),
        (
            pb.RouteMatch(prefix="/a", case_sensitive=wrappers_pb2.BoolValue(value=True)),
            Prefix("/a"),
        ),
        (
            pb.RouteMatch(safe_regex={"regex": "/a"}, case_sensitive=wrappers_pb2.BoolValue(value=False)),  # type: ignore[arg-type]
            regex("/a"),
        ),
    ],
)
def test_a_path_is_a_prefix_a_path_or_an_expression(match: pb.RouteMatch, want: StringMatcher) -> None:
    got = routes_of(here(match=match))
    assert got == (Route(match=RouteMatch(path=want), action=NonForwarding()),)


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize(
    "match",
    [
        pb.RouteMatch(prefix="a"),
        pb.RouteMatch(prefix="//"),
        pb.RouteMatch(prefix="/a/b/"),
        pb.RouteMatch(path=""),
        pb.RouteMatch(path="/a"),
        pb.RouteMatch(path="//b"),
        pb.RouteMatch(path="/a/"),
        pb.RouteMatch(path="/a/b/c"),
        pb.RouteMatch(prefix="", query_parameters=[pb.QueryParameterMatcher(name="x")]),
    ],
)
def test_a_route_that_no_call_can_match_is_left_out_with_its_problems(match: pb.RouteMatch) -> None:
    unknown = {"x": any_pb2.Any(type_url="a/test.Unknown")}
    assert routes_of(here(match=match, typed_per_filter_config=unknown)) == ()


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize(
    ("match", "problem"),
    [
        (None, f"{HERE}.match: This field is required. Add it. [Missing]"),
        (
            pb.RouteMatch(),
            f"{HERE}.match: The path condition is missing or not supported. Set prefix, path or safe_regex."
            " [MatchUnsupported]",
        ),
        (
            pb.RouteMatch(prefix="", runtime_fraction=base_pb2.RuntimeFractionalPercent()),
            f"{HERE}.match.runtime_fraction.default_value: This field is required. Add it. [ValueMissing]",
        ),
        (
            pb.RouteMatch(prefix="", headers=[pb.HeaderMatcher(name="x")]),
            f"{HERE}.match.headers[0]: The header has no matcher. Set one, such as string_match. [MatcherMissing]",
        ),
        (
            pb.RouteMatch(prefix="", tls_context=pb.RouteMatch.TlsContextMatchOptions()),
            f"{HERE}.match.tls_context: gRPC does not support this condition. Remove it. [MatchUnsupported]",
        ),
    ],
)
def test_a_match_is_refused(match: pb.RouteMatch | None, problem: str) -> None:
    made = here()
    made.ClearField("match")
    if match is not None:
        made.match.CopyFrom(match)
    assert routes_of(made) == [problem]


@pytest.mark.requirement("RT-3")
def test_clusters_without_weight_are_skipped() -> None:
    assert routes_of(weighted(("a", 1), ("b", 0), ("c", 3))) == (
        Route(
            match=RouteMatch(path=Prefix("")),
            action=Forward(clusters=(ClusterWeight(name="a"), ClusterWeight(name="c", weight=3))),
        ),
    )


@pytest.mark.requirement("RT-3")
@pytest.mark.parametrize(
    ("clusters", "problem"),
    [
        ((("a", None),), ".clusters[0].weight: This field is required. Add it. [Missing]"),
        ((("", 1),), ".clusters[0].name: The name is empty. Set a name. [NameMissing]"),
        ((("a", 0),), ": All weights are 0. Set a weight above 0. [WeightInvalid]"),
        ((), ": All weights are 0. Set a weight above 0. [WeightInvalid]"),
        ((("a", 2**32 - 1), ("b", 1)), ": The weights add up to more than 4294967295. Reduce them. [WeightInvalid]"),
    ],
)
def test_weights_are_there_and_add_up(clusters: tuple[tuple[str, int | None], ...], problem: str) -> None:
    assert routes_of(weighted(*clusters)) == [f"{HERE}.route.weighted_clusters{problem}"]


@pytest.mark.requirement("RT-3")
def test_weights_may_add_up_to_the_maximum_of_32_bits() -> None:
    assert isinstance(routes_of(weighted(("a", 2**32 - 2), ("b", 1))), tuple)


@pytest.mark.requirement("SL-5")
@pytest.mark.parametrize(
    ("made", "on_server", "on_client"),
    [
        (here(), NonForwarding(), NonForwarding()),
        (to_cluster("a"), Forward(clusters=(ClusterWeight(name="a"),)), Forward(clusters=(ClusterWeight(name="a"),))),
        (route(), UnsupportedAction(), UnsupportedAction()),
        (route(redirect=pb.RedirectAction()), UnsupportedAction(), UnsupportedAction()),
        (route(route=pb.RouteAction(cluster_header="x")), UnsupportedAction(), None),
    ],
    ids=["here", "to a cluster", "nothing", "elsewhere", "to a cluster of a header"],
)
def test_an_action_is_one_of_few_and_a_server_never_skips_a_route(
    made: pb.Route, on_server: Action, on_client: Action | None
) -> None:
    for scope, want in ((SERVER, on_server), (CLIENT, on_client)):
        got = routes_of(made, scope=scope)
        assert got == (() if want is None else (Route(match=RouteMatch(path=Prefix("")), action=want),))


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ({"max_stream_duration": duration_pb2.Duration(seconds=2)}, 2.0),
        ({"max_stream_duration": duration_pb2.Duration()}, 0.0),
        (
            {
                "max_stream_duration": duration_pb2.Duration(seconds=2),
                "grpc_timeout_header_max": duration_pb2.Duration(nanos=500_000_000),
            },
            0.5,
        ),
        ({}, None),
    ],
)
def test_a_call_may_take_so_long(limits: dict[str, duration_pb2.Duration], want: float | None) -> None:
    limit = pb.RouteAction.MaxStreamDuration(**limits)
    got = routes_of(route(route=pb.RouteAction(cluster="a", max_stream_duration=limit)))
    assert got == (
        Route(
            match=RouteMatch(path=Prefix("")),
            action=Forward(clusters=(ClusterWeight(name="a"),), longest=want),
        ),
    )


def test_all_problems_are_told_at_once() -> None:
    message = route_config(
        host(to_cluster(""), route(match=pb.RouteMatch()), domains=()),
        host(domains=("a*b",), retry_policy=pb.RetryPolicy(num_retries=wrappers_pb2.UInt32Value())),
    )
    assert decode(message) == [
        "virtual_hosts[0].routes[0].route.cluster: The name is empty. Set a name. [NameMissing]",
        "virtual_hosts[0].routes[1].match: The path condition is missing or not supported. Set prefix, path or"
        " safe_regex. [MatchUnsupported]",
        "virtual_hosts[0].domains: The list of domains is empty. Add a domain. [Missing]",
        "virtual_hosts[1].retry_policy.num_retries: num_retries is 0. Use 1 or more. [OutOfRange]",
        "virtual_hosts[1].domains[0]: 'a*b' is not a domain. Use a domain with at most one wildcard, at"
        " its start or its end."
        " [DomainInvalid]",
    ]
