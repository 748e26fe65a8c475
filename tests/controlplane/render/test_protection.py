"""Whatever the graph is: a checked route asks its own service, once, wherever it can be reached; no other asks any."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.envoy.rendered_checks import Check, Manager, managers

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Answering, Host, RouteTable, misdirected
from authplane.controlplane.graph.model.match_model import Match, Prefix
from authplane.controlplane.graph.model.port_model import Address, PlainPort, Port, SecurePort, TlsChain
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
            Route(holder=str(NAME), match=Match(path=Prefix(f"/{index}")), action=draw(ACTIONS), authorization=kind)
            for index, kind in enumerate(kinds)
        )
        drawn.append(Host(name=name, proxies=(NAME,), one_label=True, routes=routes))
    return tuple(drawn)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    services = draw(st.lists(SERVICES, min_size=1, max_size=4))
    plain = draw(hosts(draw(st.sets(st.sampled_from(NAMES))), services))
    behind = draw(hosts(sorted(draw(st.sets(st.sampled_from(NAMES)))), services))
    fallback = tuple(host for host in behind if draw(st.booleans()))
    return Graph(
        http=Address("127.0.0.1", 1),
        https=Address("127.0.0.1", 2),
        proxies=(*on_http(plain), *on_https(behind, fallback)),
    )


def on_http(hosts: Iterable[Host]) -> Iterator[Port]:
    entries = tuple(sorted(hosts, key=lambda host: host.name))
    if entries:
        refused = Answering(name="z.example", names=("z.example",), status=503)
        table = RouteTable(name="ingress_http", entries=(refused, *entries))
        yield PlainPort(name="ingress_http", where=Address("127.0.0.1", 1), counted_as="ingress_http", table=table)


def on_https(hosts: Iterable[Host], fallback: tuple[Host, ...]) -> Iterator[Port]:
    chains = [
        TlsChain(
            name=f"https/{host.name}",
            hostname=host.name,
            certificates=(NAME,),
            table=RouteTable(name=f"https/{host.name}", entries=(host, misdirected(["*", "x.example"]))),
        )
        for host in hosts
    ]
    if fallback:
        table = RouteTable(name="ingress_fallbackcert", entries=(misdirected(["*", "y.example"]), *fallback))
        chains.append(TlsChain(name="fallback-certificate", hostname="*", certificates=(NAME,), table=table))
    if chains:
        where = Address("127.0.0.1", 2)
        yield SecurePort(name="ingress_https", where=where, counted_as="ingress_https", chains=tuple(chains))


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
    assert set(manager.hosts) == {host.name for host in served} | answering
    for host in served:
        found = [manager.checks(route) for route in manager.hosts[host.name].routes]
        assert found == [wanted(each, clears=clears) for route in host.routes for each in route.authorizations]
    for name in answering:
        [route] = manager.hosts[name].routes
        assert route.direct_response.status in {421, 503}
        assert manager.checks(route) == []
    for message in manager.filters.values():
        assert message.include_peer_certificate  # AZ-19
        assert message.validate_mutations
        assert not (message.clear_route_cache and not clears)


@pytest.mark.slow
@pytest.mark.requirement("E29")
@pytest.mark.requirement("EN-8")
@given(graph=graphs())
@settings(max_examples=150, deadline=None)
def test_every_route_asks_its_own_service_wherever_it_can_be_reached(graph: Graph) -> None:
    found = {manager.routes: manager for manager in managers(render_graph(graph))}
    for table in (table for port in graph.ports for table in port.tables):
        answering = {name for entry in table.entries if isinstance(entry, Answering) for name in entry.names}
        require_protected(found.pop(table.name), table.hosts, answering)
    assert not found


@pytest.mark.slow
@given(graph=graphs())
@settings(max_examples=50, deadline=None)
def test_a_host_behind_tls_has_one_filter_that_knows_its_service(graph: Graph) -> None:
    for manager in managers(render_graph(graph)):
        if manager.routes.startswith("https/"):
            assert set(manager.filters) <= {"envoy.filters.http.ext_authz"}
            assert all("authplane/nobody" not in str(message) for message in manager.filters.values())
