"""Whatever a Gateway is: every share is checked for its own backend or not at all, as the graph says."""

from datetime import timedelta
from typing import Final

import pytest
from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from hypothesis import given
from hypothesis import strategies as st

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import GatewayHost
from authplane.controlplane.graph.model.match_model import Match, Prefix, Segments
from authplane.controlplane.graph.model.port_model import Address, GatewayChain, GatewayPort, PlainPort, SecurePort
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    Enforced,
    FailClosed,
    OverGrpc,
    RouteAuthorization,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import (
    GatewayRoute,
    NewPath,
    NewPrefix,
    ResourceMetadata,
    Share,
    Split,
)
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ
from authplane.controlplane.render.rendered import Rendered, render_graph
from authplane.controlplane.render.routes.gateway_tables import NOWHERE
from authplane.core.names import ObjectName
from authplane.core.timeouts import After

SERVICE: Final = AuthorizationService(
    cluster="authplane/policy",
    protocol=OverGrpc(authority="policy"),
    timeout=After(timedelta(seconds=1)),
    on_failure=FailClosed(status=503),
    body=CheckedBody(most_bytes=9, as_bytes=True),
)
AUTHORIZATIONS: Final[st.SearchStrategy[RouteAuthorization]] = st.one_of(
    st.just(Unprotected()),
    st.sampled_from("abc").map(lambda name: Enforced(service=SERVICE, context=(("authplane.target", name),))),
)
SHARES: Final = st.builds(
    Share,
    cluster=st.sampled_from(["one", "two", None]),
    weight=st.integers(1, 3),
    authorization=AUTHORIZATIONS,
    host=st.sampled_from(["", "host.example"]),
)
SPLITS: Final = st.builds(
    Split,
    shares=st.lists(SHARES, min_size=1, max_size=4).map(tuple),
    rewrite=st.sampled_from([None, NewPrefix("/"), NewPrefix("/x"), NewPath("/y")]),
)
DOCUMENTS: Final = st.just(ResourceMetadata(scheme="https", path="/a", issuers=("https://issuer.example",)))
ROUTES: Final = st.builds(
    GatewayRoute,
    name=st.just("route"),
    match=st.sampled_from([Match(path=Prefix("/")), Match(path=Segments("/a"))]),
    action=st.one_of(SPLITS, DOCUMENTS),
)
HOSTS: Final = st.lists(
    st.builds(
        GatewayHost, name=st.sampled_from(["*", "a.example", "*.b"]), routes=st.lists(ROUTES, max_size=3).map(tuple)
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda host: host.name,
).map(tuple)


@st.composite
def ports(draw: st.DrawFn) -> tuple[GatewayPort, ...]:
    chain = GatewayChain(
        name="ns/gateway/listener",
        hostname="c.example",
        certificates=(ObjectName("ns", "tls"),),
        clients=None,
        hosts=tuple(host for host in draw(HOSTS) if host.name != "*"),
        elsewhere=(),
    )
    return (
        PlainPort(where=Address("127.0.0.1", 1), hosts=draw(HOSTS)),
        SecurePort(where=Address("127.0.0.1", 2), chains=(chain,)),
    )


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


def wanted_shares(split: Split) -> list[Shown]:
    single = len(split.shares) == 1
    return [
        (
            share.cluster or NOWHERE,
            1 if single else share.weight,
            dict(share.authorization.context) if isinstance(share.authorization, Enforced) else None,
        )
        for share in split.shares
    ]


def bare(name: str) -> str:
    """Return the name of a table without the filters that it is made for."""
    return name.partition("#")[0]


@given(ports())
def test_every_share_is_checked_for_its_own_backend_or_not_at_all(gateways: tuple[GatewayPort, ...]) -> None:
    rendered = render_graph(Graph(http=Address("", 1), https=Address("", 2), gateways=gateways))
    tables = {table.name: table for table in rendered.routes}
    assert sorted(map(bare, tables)) == ["gateway/1", "gateway/2/ns/gateway/listener"]
    plain, secure = gateways
    assert isinstance(plain, PlainPort)
    assert isinstance(secure, SecurePort)
    hosts = {"gateway/1": plain.hosts, "gateway/2/ns/gateway/listener": secure.chains[0].hosts}
    for name, table in tables.items():
        asking = filter_of(rendered, name)
        if asking is not None:
            assert not asking.clear_route_cache
            assert not asking.failure_mode_allow
            assert asking.with_request_body == pb.BufferSettings(max_request_bytes=9, pack_as_bytes=True)
        by_name = {host.name: host for host in table.virtual_hosts}
        for host in hosts[bare(name)]:
            for route, message in zip(host.routes, by_name[host.name].routes, strict=True):
                if isinstance(route.action, Split):
                    assert rendered_shares(asking, message) == wanted_shares(route.action)
                    unresolved = any(share.cluster is None for share in route.action.shares)
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
        (Match(path=Prefix("/")), NewPrefix("/x"), ("/x/", "", "")),
        (Match(path=Prefix("/")), NewPrefix("/"), ("/", "", "")),
        (Match(path=Segments("/a")), NewPath("/y"), ("", "^/.*$", "/y")),
    ],
)
def test_paths_are_rewritten_without_a_second_slash(
    match: Match, rewrite: NewPrefix | NewPath, want: tuple[str, str, str]
) -> None:
    split = Split(shares=(Share(cluster="one", weight=1, authorization=Unprotected()),), rewrite=rewrite)
    host = GatewayHost(name="*", routes=(GatewayRoute(name="r", match=match, action=split),))
    port = PlainPort(where=Address("127.0.0.1", 1), hosts=(host,))
    [table] = render_graph(Graph(http=Address("", 1), https=Address("", 2), gateways=(port,))).routes
    action = table.virtual_hosts[0].routes[0].route
    assert (action.prefix_rewrite, action.regex_rewrite.pattern.regex, action.regex_rewrite.substitution) == want
