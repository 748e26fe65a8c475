"""Whatever the policies are: a checked route meets the filter, and only an unchecked one goes round it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from authplane.base.names import ObjectName
from authplane.base.timeouts import UseDefault
from authplane.graph.guards import (
    AuthorizationService,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    OverGrpc,
    RouteAuthorization,
    Unprotected,
)
from authplane.graph.model import (
    Address,
    Forward,
    Graph,
    Host,
    Match,
    Prefix,
    RedirectToHttps,
    Respond,
    Route,
    SecureHost,
    Target,
)
from authplane.render.dump import dump
from authplane.render.rendered import render_graph

NAME = ObjectName("default", "x")
FILTER = "envoy.filters.http.ext_authz"


@st.composite
def secure_hosts(draw: st.DrawFn) -> SecureHost:
    service = AuthorizationService(
        cluster="extension/default/auth",
        protocol=OverGrpc(authority="auth"),
        timeout=UseDefault(),
        on_failure=FailOpen() if draw(st.booleans()) else FailClosed(),
    )
    context = st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=3), max_size=2)
    kinds: list[st.SearchStrategy[RouteAuthorization]] = [
        st.just(Unprotected()),
        st.just(Disabled()),
        context.map(lambda entries: Enforced(service=service, context=tuple(sorted(entries.items())))),
    ]
    action = st.sampled_from(
        [Forward(targets=(Target(cluster="c", weight=1),)), Respond(status=503), RedirectToHttps(443)]
    )
    routes = draw(
        st.lists(
            st.builds(
                Route,
                proxy=st.just(NAME),
                match=st.just(Match(path=Prefix("/"))),
                action=action,
                authorization=st.one_of(kinds),
            ),
            min_size=1,
            max_size=5,
        )
    )
    host = Host(fqdn=draw(st.sampled_from(["a.example", "b.example"])), proxy=NAME, routes=tuple(routes))
    return SecureHost(host=host, certificate=NAME, minimum_tls="1.2", elsewhere=())


@given(secure=secure_hosts())
@settings(max_examples=200, deadline=None)
def test_a_checked_route_meets_the_filter_and_no_other_goes_round_it(secure: SecureHost) -> None:
    graph = Graph(http=Address("127.0.0.1", 1), https=Address("127.0.0.1", 2), secure_hosts=(secure,))
    rendered = dump(render_graph(graph), show_secrets=False)
    [chain] = rendered["listeners"][0]["filterChains"]
    manager = chain["filters"][0]["typedConfig"]
    filters = {each["name"]: each["typedConfig"] for each in manager["httpFilters"]}
    [mine, misdirected] = rendered["routes"][0]["virtualHosts"]
    checked = [isinstance(route.authorization, Enforced) for route in secure.host.routes]
    assert (FILTER in filters) == any(checked)
    for route, want in zip(mine["routes"], checked, strict=True):
        own = route.get("typedPerFilterConfig", {}).get(FILTER, {})
        assert own.get("disabled", False) == (any(checked) and not want)
        assert want or not own.get("checkSettings")
    assert misdirected["routes"][0]["directResponse"] == {"status": 421}
    if FILTER in filters:
        assert filters[FILTER].get("clearRouteCache", False) == all(checked)
        assert list(filters) == [FILTER, "envoy.filters.http.router"]
