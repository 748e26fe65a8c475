"""Whatever the graph is: a checked route asks its own service, once, wherever it can be reached; no other asks any."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.envoy.rendered_checks import Check, Manager, managers

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.match_model import Match, Prefix
from authplane.controlplane.graph.model.port_model import Address, Fallback, SecureHost
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    HeaderNames,
    NameTest,
    OverGrpc,
    OverHttp,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Action, Forward, RedirectToHttps, Respond, Route, Target
from authplane.controlplane.graph.model.upstreams import NO_LIMITS
from authplane.controlplane.render.rendered import render_graph
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, Timeout, UseDefault
from authplane.core.timeouts import Disabled as NoTimeout

NAME: Final = ObjectName("default", "x")
NAMES: Final = ("a.example", "b.example", "c.example", "d.example")
SECONDS: Final[dict[Timeout, float]] = {UseDefault(): 0.2, NoTimeout(): 0.0, After(timedelta(seconds=2)): 2.0}
WORDS: Final = {FailClosed(): "closed", FailOpen(): "open", Shadow(): "shadow"}

SERVICES: Final = st.builds(
    AuthorizationService,
    cluster=st.sampled_from(["extension/default/one", "extension/default/two"]),
    protocol=st.one_of(
        st.builds(OverGrpc, authority=st.sampled_from(["one", "two"])),
        st.builds(
            OverHttp,
            path_prefix=st.sampled_from(["", "/verify"]),
            request_headers=st.sampled_from([(), (HeaderNames(test=NameTest.EXACT, text="x-user"),)]),
        ),
    ),
    timeout=st.sampled_from(list(SECONDS)),
    on_failure=st.sampled_from(list(WORDS)),
    body=st.sampled_from([None, CheckedBody(most_bytes=9), CheckedBody(most_bytes=70_000, partial=True)]),
)
ACTIONS: Final[st.SearchStrategy[Action]] = st.sampled_from(
    [Forward(targets=(Target(cluster="c", weight=1),)), Respond(status=503), RedirectToHttps(443)]
)


def authorizations(service: AuthorizationService) -> st.SearchStrategy[RouteAuthorization]:
    entries = st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=3), max_size=2)
    context = st.just({}) if isinstance(service.protocol, OverHttp) else entries
    return st.one_of(
        st.just(Unprotected()),
        st.just(Disabled()),
        context.map(lambda given: Enforced(service=service, context=tuple(sorted(given.items())))),
    )


@st.composite
def hosts(draw: st.DrawFn, names: Iterable[str], services: list[AuthorizationService]) -> tuple[Host, ...]:
    """Draw a host for each name; its routes ask one service, as a virtual host does."""
    drawn = []
    for name in names:
        service = draw(st.sampled_from(services))
        kinds = draw(st.lists(authorizations(service), min_size=1, max_size=4))
        routes = tuple(
            Route(proxy=NAME, match=Match(path=Prefix(f"/{index}")), action=draw(ACTIONS), authorization=kind)
            for index, kind in enumerate(kinds)
        )
        drawn.append(Host(fqdn=name, proxy=NAME, routes=routes))
    return tuple(drawn)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    services = draw(st.lists(SERVICES, min_size=1, max_size=4))
    plain = draw(hosts(draw(st.sets(st.sampled_from(NAMES))), services))
    behind = draw(hosts(sorted(draw(st.sets(st.sampled_from(NAMES)))), services))
    fallback = tuple(host for host in behind if draw(st.booleans()))
    secure = (SecureHost(host=host, certificate=NAME, elsewhere=("x.example",)) for host in behind)
    return Graph(
        http=Address("127.0.0.1", 1),
        https=Address("127.0.0.1", 2),
        plain_hosts=tuple(sorted(plain, key=lambda host: host.fqdn)),
        secure_hosts=tuple(secure),
        fallback=Fallback(certificate=NAME, limits=NO_LIMITS, hosts=fallback, elsewhere=("y.example",))
        if fallback
        else None,
        refused=("z.example",) if plain else (),
    )


def wanted(authorization: RouteAuthorization, *, clears: bool) -> list[Check]:
    if not isinstance(authorization, Enforced):
        return []
    service, body = authorization.service, authorization.service.body
    match service.protocol:
        case OverGrpc(authority=authority):
            protocol = authority
        case OverHttp(path_prefix=prefix, request_headers=headers):
            protocol = f"http {prefix}" + "".join(f" {each.text}" for each in headers)
    return [
        Check(
            cluster=service.cluster,
            protocol=protocol,
            without_answer=WORDS[service.on_failure],
            context=authorization.context,
            seconds=SECONDS[service.timeout],
            body=None if body is None else (body.most_bytes, body.partial, body.as_bytes),
            clears=clears,
        )
    ]


def all_checked_alike(served: Iterable[Host]) -> bool:
    """Tell whether another route may be chosen after a check: each of them asks for the same, and the answer counts."""
    return all(
        isinstance(route.authorization, Enforced)
        and route.authorization.service.on_failure != Shadow()
        and route.authorization == host.routes[0].authorization
        for host in served
        for route in host.routes
    )


def require_protected(manager: Manager, served: tuple[Host, ...], answering: set[str]) -> None:
    """Require of a connection manager that it serves these hosts, each route as it should, and nothing else."""
    clears = all_checked_alike(served)
    assert set(manager.hosts) == {host.fqdn for host in served} | answering
    for host in served:
        found = [manager.checks(route) for route in manager.hosts[host.fqdn].routes]
        assert found == [wanted(route.authorization, clears=clears) for route in host.routes]
    for name in answering:
        [route] = manager.hosts[name].routes
        assert route.direct_response.status in {421, 503}
        assert manager.checks(route) == []
    for message in manager.filters.values():
        assert message.include_peer_certificate  # AZ-19
        assert message.validate_mutations
        assert not (message.clear_route_cache and not clears)


@pytest.mark.requirement("E29")
@pytest.mark.requirement("EN-8")
@given(graph=graphs())
@settings(max_examples=150, deadline=None)
def test_every_route_asks_its_own_service_wherever_it_can_be_reached(graph: Graph) -> None:
    found = {manager.routes: manager for manager in managers(render_graph(graph))}
    if graph.plain_hosts:
        require_protected(found.pop("ingress_http"), graph.plain_hosts, set(graph.refused))
    for secure in graph.secure_hosts:
        require_protected(found.pop(f"https/{secure.host.fqdn}"), (secure.host,), {"*", *secure.elsewhere})
    if graph.fallback is not None:
        fallback = graph.fallback
        require_protected(found.pop("ingress_fallbackcert"), fallback.hosts, {"*", *fallback.elsewhere})
    assert not found


@given(graph=graphs())
@settings(max_examples=50, deadline=None)
def test_a_host_behind_tls_has_one_filter_that_knows_its_service(graph: Graph) -> None:
    for manager in managers(render_graph(graph)):
        if manager.routes.startswith("https/"):
            assert set(manager.filters) <= {"envoy.filters.http.ext_authz"}
            assert all("authplane/nobody" not in str(message) for message in manager.filters.values())
