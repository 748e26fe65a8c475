"""Whatever a Gateway is: every share is checked for its own backend or not at all, as the graph says."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from hypothesis import given
from hypothesis import strategies as st

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host, RouteTable, misdirected
from authplane.controlplane.graph.model.match_model import Match, Prefix, Segments
from authplane.controlplane.graph.model.port_model import Address, PlainPort, SecurePort, TlsChain
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    ByTarget,
    CheckedBody,
    Enforced,
    FailClosed,
    OverGrpc,
    RouteAuthorization,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward, NewPath, NewPrefix, ResourceMetadata, Route, Target
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ
from authplane.controlplane.render.rendered import Rendered, render_graph
from authplane.controlplane.render.routes.action_messages import NOWHERE
from authplane.core.names import ObjectName
from authplane.core.timeouts import After

SERVICE: Final = AuthorizationService(
    cluster="authplane/policy",
    protocol=OverGrpc(authority="policy"),
    timeout=After(timedelta(seconds=1)),
    on_failure=FailClosed(status=503),
    body=CheckedBody(most_bytes=9, as_bytes=True),
    by_policies=True,
)
AUTHORIZATIONS: Final[st.SearchStrategy[RouteAuthorization]] = st.one_of(
    st.just(Unprotected()),
    st.sampled_from("abc").map(lambda name: Enforced(service=SERVICE, context=(("authplane.target", name),))),
)
REWRITES: Final = st.sampled_from([None, NewPrefix("/"), NewPrefix("/x"), NewPath("/y")])
TARGETS: Final = st.builds(
    Target,
    cluster=st.sampled_from(["one", "two", None]),
    weight=st.integers(1, 3),
    host=st.sampled_from([None, "", "host.example"]),
)
MATCHES: Final = st.sampled_from([Match(path=Prefix("/")), Match(path=Segments("/a"))])
DOCUMENTS: Final = st.builds(
    Route,
    holder=st.just("ns/gateway/listener"),
    match=MATCHES,
    action=st.just(ResourceMetadata(scheme="https", path="/a", issuers=("https://issuer.example",))),
    authorization=st.just(Unprotected()),
)


@st.composite
def splits(draw: st.DrawFn) -> Route:
    """Draw a route as HTTPRoutes have them: one backend is the route's own, and several are authorized each."""
    shares = draw(st.lists(st.tuples(TARGETS, AUTHORIZATIONS), min_size=1, max_size=4))
    targets, given_to = [target for target, _ in shares], tuple(each for _, each in shares)
    alone, host = len(shares) == 1, ""
    if alone:
        host, targets = targets[0].host or "", [replace(targets[0], host=None)]
    return Route(
        holder="ns/route",
        match=draw(MATCHES),
        action=Forward(targets=tuple(targets), rewrite=draw(REWRITES), host=host),
        authorization=given_to[0] if alone else ByTarget(given_to),
    )


HOSTS: Final = st.lists(
    st.builds(
        Host,
        name=st.sampled_from(["*", "a.example", "*.b"]),
        routes=st.lists(st.one_of(splits(), DOCUMENTS), max_size=20).map(tuple),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda host: host.name,
).map(tuple)


def plain_port(hosts: tuple[Host, ...]) -> PlainPort:
    table = RouteTable(name="gateway/1", entries=hosts, gaps=True)
    return PlainPort(name="gateway/1", where=Address("127.0.0.1", 1), counted_as="gateway", table=table)


@st.composite
def ports(draw: st.DrawFn) -> tuple[PlainPort, SecurePort]:
    hosts = tuple(host for host in draw(HOSTS) if host.name != "*")
    name = "gateway/2/ns/gateway/listener"
    chain = TlsChain(
        name=name,
        hostname="c.example",
        certificates=(ObjectName("ns", "tls"),),
        table=RouteTable(name=name, entries=(*hosts, misdirected(["*"])), gaps=True),
    )
    where = Address("127.0.0.1", 2)
    return plain_port(draw(HOSTS)), SecurePort(name="gateway/2", where=where, counted_as="gateway", chains=(chain,))


def filter_of(rendered: Rendered, table: str) -> pb.ExtAuthz | None:
    """Return the one filter that asks for the routes of a table."""
    for listener in rendered.listeners:
        for chain in listener.filter_chains:
            manager = hcm_pb.HttpConnectionManager()
            assert chain.filters[0].typed_config.Unpack(manager)
            assert not manager.upgrade_configs
            assert manager.forward_client_cert_details == hcm_pb.HttpConnectionManager.SANITIZE
            if manager.rds.route_config_name == table:
                asking = [each for each in manager.http_filters if each.name == EXT_AUTHZ]
                assert len(asking) == len(manager.http_filters) - 1 <= 1
                message = pb.ExtAuthz()
                assert all(each.typed_config.Unpack(message) for each in asking)
                return message if asking else None
    raise AssertionError(table)


Shown = tuple[str, int, dict[str, str] | None]


def shown(asking: pb.ExtAuthz | None, name: str, weight: int, configs: object) -> Shown:
    """Return a cluster, its weight, and the context of its check; None without a check."""
    own = pb.ExtAuthzPerRoute()
    packed = configs.get(EXT_AUTHZ)  # type: ignore[attr-defined]
    assert packed is None or packed.Unpack(own)
    context = None if asking is None or own.disabled else dict(own.check_settings.context_extensions)
    return name, weight, context


def rendered_shares(asking: pb.ExtAuthz | None, route: route_pb.Route) -> list[Shown]:
    if route.route.HasField("weighted_clusters"):
        # What held for the route would hold for every share.
        assert not route.typed_per_filter_config
        return [
            shown(asking, each.name, each.weight.value, each.typed_per_filter_config)
            for each in route.route.weighted_clusters.clusters
        ]
    return [shown(asking, route.route.cluster, 1, route.typed_per_filter_config)]


def wanted_shares(route: Route, forward: Forward) -> list[Shown]:
    single = len(forward.targets) == 1
    return [
        (
            target.cluster or NOWHERE,
            1 if single else target.weight,
            dict(authorization.context) if isinstance(authorization, Enforced) else None,
        )
        for target, authorization in zip(forward.targets, route.authorizations, strict=True)
    ]


def bare(name: str) -> str:
    """Return the name of a table without the filters that it is made for."""
    return name.partition("#")[0]


@pytest.mark.slow
@given(ports())
def test_every_share_is_checked_for_its_own_backend_or_not_at_all(gateways: tuple[PlainPort, SecurePort]) -> None:
    rendered = render_graph(Graph(http=Address("", 1), https=Address("", 2), gateways=gateways))
    tables = {table.name: table for table in rendered.routes}
    assert sorted(map(bare, tables)) == ["gateway/1", "gateway/2/ns/gateway/listener"]
    hosts = {table.name: table.hosts for port in gateways for table in port.tables}
    for name, table in tables.items():
        asking = filter_of(rendered, name)
        if asking is not None:
            assert not asking.clear_route_cache
            assert not asking.failure_mode_allow
            assert asking.with_request_body == pb.BufferSettings(max_request_bytes=9, pack_as_bytes=True)
        by_name = {host.name: host for host in table.virtual_hosts}
        for host in hosts[bare(name)]:
            for route, message in zip(host.routes, by_name[host.name].routes, strict=True):
                if isinstance(route.action, Forward):
                    assert rendered_shares(asking, message) == wanted_shares(route, route.action)
                    unresolved = any(target.cluster is None for target in route.action.targets)
                    codes = route_pb.RouteAction.ClusterNotFoundResponseCode
                    assert message.route.cluster_not_found_response_code == (
                        codes.INTERNAL_SERVER_ERROR if unresolved else codes.SERVICE_UNAVAILABLE
                    )
                else:
                    assert shown(asking, "", 1, message.typed_per_filter_config)[2] is None


@pytest.mark.parametrize(
    ("match", "rewrite", "want"),
    [
        (Match(path=Segments("/a")), NewPrefix("/x"), ("/x", "", "")),
        (Match(path=Segments("/a+b")), NewPrefix("/"), ("", r"^/a\+b/*", "/")),
        (Match(path=Prefix("/")), NewPrefix("/x/"), ("/x/", "", "")),
        (Match(path=Prefix("/")), NewPrefix("/"), ("/", "", "")),
        (Match(path=Segments("/a")), NewPath("/y"), ("", "^/.*$", "/y")),
    ],
)
def test_paths_are_rewritten_without_a_second_slash(
    match: Match, rewrite: NewPrefix | NewPath, want: tuple[str, str, str]
) -> None:
    action = Forward(targets=(Target(cluster="one", weight=1),), rewrite=rewrite)
    route = Route(holder="r", match=match, action=action, authorization=Unprotected())
    port = plain_port((Host(name="*", routes=(route,)),))
    [table] = render_graph(Graph(http=Address("", 1), https=Address("", 2), gateways=(port,))).routes
    message = table.virtual_hosts[0].routes[0].route
    assert (message.prefix_rewrite, message.regex_rewrite.pattern.regex, message.regex_rewrite.substitution) == want
