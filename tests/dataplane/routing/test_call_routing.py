"""Where calls go, and which filters judge them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.filter_messages import http_filter, packed, router
from tests.support.dataplane.listener_messages import api_listener, chain, manager, rds, server_listener, serving
from tests.support.dataplane.plain_filters import CLIENT, SERVER, TRUST, Built, Config, OverrideConfig
from tests.support.dataplane.route_messages import here, host, route, route_config, to_cluster, weighted

from authplane.dataplane.config.listeners import ApiListener, ConnectionManager, ServerListener
from authplane.dataplane.config.read.decode_resource import decode_listener, decode_routes
from authplane.dataplane.config.routes import RouteConfiguration, VirtualHost
from authplane.dataplane.filters.calls import Call, Code, Metadata, Side, Stop
from authplane.dataplane.filters.registry import Kept, Scope, State
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.dataplane.routing.authority_hosts import HostTable
from authplane.dataplane.routing.call_routing import (
    NO_AUTHORITY,
    NO_HOST,
    NO_ROUTE,
    Routed,
    RoutesMissing,
    RouteTable,
    build_route_table,
)
from authplane.xds.bootstrap.credentials import Insecure, ServiceCredentials
from authplane.xds.client.watched_types import Invalid

STARTED: Final = datetime(2026, 1, 1, tzinfo=UTC)


def state(kept: Kept | None = None) -> State:
    return State(random=lambda: 0.0, monotonic=lambda: 0.0, kept=kept or Kept())


def call(path: str = "/a.B/C", authority: str | None = "a", metadata: Metadata = ()) -> Call:
    return Call(
        side=Side.SERVER,
        path=path,
        authority=authority,
        metadata=metadata,
        started=STARTED,
        remaining=None,
        connection=None,
    )


def server_manager(held: hcm_pb.HttpConnectionManager, scope: Scope = SERVER) -> ConnectionManager:
    got = decode_listener(server_listener(chain(held)).SerializeToString(), scope)
    assert isinstance(got, ServerListener), got
    return got.chains[0].manager


def client_manager(held: hcm_pb.HttpConnectionManager) -> ConnectionManager:
    got = decode_listener(api_listener(held).SerializeToString(), CLIENT)
    assert isinstance(got, ApiListener), got
    return got.manager


def routes(message: route_pb2.RouteConfiguration, scope: Scope = SERVER) -> RouteConfiguration:
    got = decode_routes(message.SerializeToString(), scope)
    assert not isinstance(got, Invalid), got
    return got


def on_server(
    message: route_pb2.RouteConfiguration, *filters: hcm_pb.HttpFilter, kept: Kept | None = None
) -> RouteTable:
    held = server_manager(serving(*filters, rds=rds("r")))
    return build_route_table(held, routes(message), Side.SERVER, state(kept))


def on_client(message: route_pb2.RouteConfiguration, *filters: hcm_pb.HttpFilter, **kwargs: Any) -> RouteTable:
    held = client_manager(manager(*filters, rds=rds("r"), **kwargs))
    return build_route_table(held, routes(message, CLIENT), Side.CLIENT, state())


def never() -> float:
    raise AssertionError("nothing is to be drawn")


def drawing(*numbers: float) -> Any:
    left: Iterator[float] = iter(numbers)
    return lambda: next(left)


HOSTS: Final = ("exact.example", "*.example", "*act.example", "exact.*", "exact.ex*", "*")


@pytest.mark.requirement("RT-1")
@pytest.mark.parametrize(
    ("authority", "want"),
    [
        ("exact.example", "exact.example"),
        ("EXACT.example", "exact.example"),
        ("ract.example", "*act.example"),
        ("act.example", "*.example"),
        ("a.example", "*.example"),
        (".example", "*"),
        ("exact.exa", "exact.ex*"),
        ("exact.ex", "exact.*"),
        ("exact.", "*"),
        ("exact.e", "exact.*"),
        ("exact.example:80", "exact.ex*"),
        ("", "*"),
        (None, "*"),
    ],
)
def test_the_closest_domain_serves(authority: str | None, want: str) -> None:
    for order in (HOSTS, HOSTS[::-1]):
        place = HostTable.of([VirtualHost(domains=(each,)) for each in order]).pick(authority)
        assert place is not None
        assert order[place] == want


@pytest.mark.requirement("RT-1")
@pytest.mark.parametrize(("domain", "other"), [("a.b", "a.c"), ("*.b", "a.c"), ("a.*", "b.b")])
def test_a_domain_alone_serves_its_own_authority_and_no_other(domain: str, other: str) -> None:
    table = HostTable.of([VirtualHost(domains=(domain,))])
    assert (table.pick("a.b"), table.pick(other)) == (0, None)


@pytest.mark.requirement("RT-1")
def test_of_equal_domains_the_first_serves_and_without_one_none() -> None:
    hosts = [VirtualHost(domains=("a",)), VirtualHost(domains=("a", "*b"))]
    assert [HostTable.of(hosts).pick(each) for each in ("a", "xb", "b", None)] == [0, 1, None, None]


@pytest.mark.slow
@pytest.mark.requirement("RT-1")
@settings(deadline=None)
@given(
    st.lists(st.text("ab", max_size=3).flatmap(lambda text: st.sampled_from([text or "a", f"*{text}", f"{text}*"]))),
    st.text("ab", max_size=4),
)
def test_picking_hosts_agrees_with_the_rule(domains: list[str], authority: str) -> None:
    def rank(domain: str) -> tuple[int, int] | None:
        if domain == "*":
            return (0, 0)
        if domain == authority:
            return (3, len(domain))
        if len(authority) >= len(domain) and domain.startswith("*") and authority.endswith(domain[1:]):
            return (2, len(domain))
        if len(authority) >= len(domain) and domain.endswith("*") and authority.startswith(domain[:-1]):
            return (1, len(domain))
        return None

    ranked = [(found, -index) for index, domain in enumerate(domains) if (found := rank(domain)) is not None]
    got = HostTable.of([VirtualHost(domains=(each,)) for each in domains]).pick(authority)
    assert got == (-max(ranked)[1] if ranked else None)


@pytest.mark.requirement("SL-5")
@pytest.mark.parametrize(
    ("made", "want"),
    [
        (here(), Routed()),
        (to_cluster("c"), "the route has no non_forwarding_action"),
        (route(), "the route has no non_forwarding_action"),
        (route(route=pb.RouteAction(cluster_header="x")), "the route has no non_forwarding_action"),
    ],
    ids=["here", "to a cluster", "nothing", "to a cluster of a header"],
)
def test_a_server_answers_only_what_its_routes_let_it(made: pb.Route, want: Routed | str) -> None:
    got = on_server(route_config(host(made, here()))).route(call(), never)
    assert got == (Routed(stop=Stop(code=Code.UNAVAILABLE, message=want)) if isinstance(want, str) else want)


@pytest.mark.requirement("SL-5")
def test_a_call_that_nothing_matches_is_unavailable() -> None:
    table = on_server(route_config(host(here("/x.Y/"), domains=("a",))))
    assert table.route(call(authority="b"), never) == NO_HOST
    assert table.route(call(authority=None), never) == NO_HOST
    assert table.route(call(authority="a"), never) == NO_ROUTE
    assert table.route(call("/x.Y/Z"), never) == Routed()


@pytest.mark.requirement("SL-5")
def test_without_routes_the_filters_still_judge_calls_before_they_fail() -> None:
    held = server_manager(serving(http_filter("rbac", rbac_pb2.RBAC()), router(), rds=rds("r")))
    table = build_route_table(held, RoutesMissing("r does not exist"), Side.SERVER, state())
    assert table.route(call(), never) == Routed(
        filters=(Built(Config("envoy.extensions.filters.http.rbac.v3.RBAC", b""), None),),
        stop=Stop(code=Code.UNAVAILABLE, message="no routes: r does not exist"),
    )


@pytest.mark.requirement("RT-3")
def test_the_first_route_that_matches_is_taken() -> None:
    match = pb.RouteMatch(prefix="/a", headers=[pb.HeaderMatcher(name="x", exact_match="1,2")])
    table = on_client(
        route_config(
            host(
                to_cluster("exact", match=pb.RouteMatch(path="/a.B/C")),
                to_cluster("header", match=match),
                to_cluster("prefix", "/a"),
                to_cluster("rest"),
            )
        )
    )
    calls = [
        call(),
        call("/a.B/D", metadata=(("x", "1"), ("y", "0"), ("x", "2"))),
        call("/a.B/D", metadata=(("x", "1"),)),
        call("/b.B/D"),
    ]
    assert [table.route(each, never).cluster for each in calls] == ["exact", "header", "prefix", "rest"]


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize(
    ("name", "metadata", "want"),
    [
        ("x", (), None),
        ("x", (("x", ""),), ""),
        ("x-bin", (("x-bin", b"1"),), None),
        ("content-type", (), "application/grpc"),
        (":path", (), "/a.B/C"),
        (":method", (), "POST"),
        (":authority", (), "a"),
        ("host", (), "a"),
        ("te", (("te", "trailers"),), None),
    ],
)
def test_routes_see_headers_as_grpc_shows_them(name: str, metadata: Metadata, want: str | None) -> None:
    specifier: dict[str, Any] = {"present_match": False} if want is None else {"exact_match": want}
    match = pb.RouteMatch(prefix="", headers=[pb.HeaderMatcher(name=name, **specifier)])
    table = on_client(route_config(host(to_cluster("yes", match=match), to_cluster("no"))))
    assert table.route(call(metadata=metadata), never).cluster == "yes"


@pytest.mark.parametrize("name", [":authority", "Host"])
def test_a_route_that_needs_an_unknown_authority_stops_calls_before_the_next_route(
    name: str,
) -> None:
    match = pb.RouteMatch(prefix="/a", headers=[pb.HeaderMatcher(name=name, exact_match="guarded")])
    table = on_server(route_config(host(here(match=match), here())))
    assert table.route(call(authority=None), never) == NO_AUTHORITY
    assert table.route(call("/b.B/C", authority=None), never) == Routed()
    assert table.route(call(authority="open"), never) == Routed()


def test_a_route_that_asks_for_other_headers_needs_no_authority() -> None:
    match = pb.RouteMatch(prefix="/a", headers=[pb.HeaderMatcher(name="x", present_match=True)])
    table = on_server(route_config(host(here(match=match))))
    assert table.route(call(authority=None, metadata=(("x", "1"),)), never) == Routed()
    assert table.route(call(authority=None), never) == NO_ROUTE


@pytest.mark.requirement("RT-1")
def test_a_host_for_all_leaves_others_their_calls() -> None:
    every, one = host(here()), host(here("/x"), domains=("a",))
    table = on_server(route_config(every, one))
    assert table.route(call(authority="a"), never) == NO_ROUTE
    assert table.route(call(authority="b"), never) == Routed()


@pytest.mark.requirement("HF-21")
@pytest.mark.requirement("RT-2")
def test_each_fraction_and_each_choice_has_a_number_of_its_own() -> None:
    half = pb.RouteMatch(prefix="")
    half.runtime_fraction.default_value.numerator = 50
    table = on_client(
        route_config(host(to_cluster("a", match=half), to_cluster("b", match=half), weighted(("c", 1), ("d", 3))))
    )
    numbers = [(0.4,), (0.5, 0.4), (0.5, 0.5, 0.0), (0.9, 0.9, 0.24), (0.9, 0.9, 0.25), (0.9, 0.9, 0.999_999)]
    assert [table.route(call(), drawing(*each)).cluster for each in numbers] == ["a", "b", "c", "c", "d", "d"]


@pytest.mark.requirement("RT-3")
@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.floats(0, 1, exclude_max=True))
def test_clusters_are_chosen_by_weight(weights: list[int], number: float) -> None:
    table = on_client(route_config(host(weighted(*((str(index), each) for index, each in enumerate(weights))))))
    got = int(table.route(call(), lambda: number).cluster)
    assert sum(weights[:got]) <= number * sum(weights) <= sum(weights[: got + 1])


@pytest.mark.parametrize(
    ("of_route", "of_manager", "want"), [(None, None, None), (None, 3, 3.0), (2, 3, 2.0), (0, 3, None), (None, 0, None)]
)
def test_a_call_may_take_as_long_as_its_route_says_or_else_the_manager(
    of_route: int | None, of_manager: int | None, want: float | None
) -> None:
    action = pb.RouteAction(cluster="c")
    if of_route is not None:
        action.max_stream_duration.max_stream_duration.seconds = of_route
        action.max_stream_duration.max_stream_duration.SetInParent()
    options = {} if of_manager is None else {"max_stream_duration": {"seconds": of_manager}}
    table = on_client(route_config(host(route(route=action))), common_http_protocol_options=options)
    assert table.route(call(), never) == Routed(cluster="c", longest=want)


def test_a_client_has_no_use_for_routes_without_a_cluster() -> None:
    got = on_client(route_config(host(here()))).route(call(), never)
    assert got == Routed(stop=Stop(code=Code.UNAVAILABLE, message="the route does not forward to a cluster"))


def per_route(value: str) -> dict[str, Any]:
    return {"fault": packed(fault_pb2.HTTPFault(upstream_cluster=value))}


@pytest.mark.requirement("HF-16")
def test_each_cluster_of_a_route_has_its_own_filters() -> None:
    made = weighted(("a", 1), ("b", 1), typed_per_filter_config=per_route("route"))
    for name, config in per_route("cluster").items():
        made.route.weighted_clusters.clusters[0].typed_per_filter_config[name].CopyFrom(config)
    table = on_client(route_config(host(made)), http_filter("fault", fault_pb2.HTTPFault()), router())
    config = Config("envoy.extensions.filters.http.fault.v3.HTTPFault", b"", Side.CLIENT)

    def override(value: str) -> OverrideConfig:
        return OverrideConfig(fault_pb2.HTTPFault(upstream_cluster=value).SerializeToString())

    assert [table.route(call(), lambda number=number: number) for number in (0.0, 0.9)] == [  # type: ignore[misc]
        Routed(filters=(Built(config, override("cluster")),), cluster="a"),
        Routed(filters=(Built(config, override("route")),), cluster="b"),
    ]


def test_an_override_of_another_kind_stops_the_calls_of_its_route() -> None:
    message = route_config(host(here("/a", typed_per_filter_config=per_route("x")), here()))
    table = on_server(message, http_filter("fault", rbac_pb2.RBAC()), router())
    assert table.route(call(), never).stop == Stop(
        code=Code.UNAVAILABLE,
        message="the route overrides filter 'fault' with the configuration of another filter type",
    )
    assert table.route(call("/b.C/D"), never).stop is None


def test_routes_with_equal_overrides_share_their_filters() -> None:
    table = on_server(route_config(host(here("/a"), here("/b"))), http_filter("rbac", rbac_pb2.RBAC()), router())
    one, other = (table.route(call(path), never).filters for path in ("/a.B/C", "/b.B/C"))
    assert one[0] is other[0]


@pytest.mark.requirement("HF-24")
def test_what_a_filter_keeps_survives_an_update_of_routes_and_of_the_listener() -> None:
    rbac = http_filter("rbac", rbac_pb2.RBAC())
    kept = Kept()
    first = on_server(route_config(host(here())), rbac, router(), kept=kept).route(call(), never).filters[0]
    again = kept.next_generation()
    second = (
        on_server(route_config(host(here("/a"))), rbac, router("other"), kept=again).route(call(), never).filters[0]
    )
    other = http_filter("rbac", rbac_pb2.RBAC(shadow_rules_stat_prefix="x"))
    third = on_server(route_config(host(here())), other, router(), kept=again.next_generation())
    assert isinstance(first, Built)
    assert isinstance(second, Built)
    assert second.counter is first.counter
    changed = third.route(call(), never).filters[0]
    assert isinstance(changed, Built)
    assert changed.counter is not first.counter


def authorizing(**kwargs: Any) -> hcm_pb.HttpFilter:
    config = ext_authz_pb2.ExtAuthz()
    config.grpc_service.google_grpc.target_uri = "dns:///authz"
    config.filter_enabled.default_value.numerator = 0
    config.deny_at_disable.default_value.value = True
    return http_filter("authz", config, **kwargs)


@pytest.mark.requirement("HF-18")
@pytest.mark.parametrize(
    ("disabled", "override", "runs"),
    [
        (False, None, True),
        (True, None, False),
        (False, pb.FilterConfig(disabled=True), False),
        (True, pb.FilterConfig(config=packed(ext_authz_pb2.ExtAuthzPerRoute(disabled=True))), True),
        (False, ext_authz_pb2.ExtAuthzPerRoute(disabled=True), True),
    ],
    ids=["on", "off", "off by the route", "on by the route", "the filter's own switch is not ours"],
)
def test_a_disabled_filter_is_not_there_at_all(override: Any, *, disabled: bool, runs: bool) -> None:
    services = {"dns:///authz": ServiceCredentials(channel=Insecure())}
    scope = Scope(side=Side.SERVER, trust=replace(TRUST, allowed_services=services), registry=standard_registry())
    held = server_manager(serving(authorizing(disabled=disabled), router(), rds=rds("r")), scope)
    overrides = {} if override is None else {"authz": packed(override)}
    message = route_config(host(here(typed_per_filter_config=overrides)))
    table = build_route_table(held, routes(message, scope), Side.SERVER, state())
    assert len(table.route(call(), never).filters) == int(runs)
