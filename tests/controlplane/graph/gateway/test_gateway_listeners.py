"""Listeners and the routes that attach to them: whose a host is, who comes first, what each mistake costs."""

from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import server, tls_secret
from tests.support.resources.contour_documents import ECHO, World
from tests.support.resources.graph_views import elsewhere, forwards_on, hosts_on

from authplane.controlplane.graph.gateway.route_matches import precedence, read_match, read_timeout
from authplane.controlplane.graph.model.hostnames import breadth, closest, common_name, covers, hostname_problem
from authplane.controlplane.graph.model.match_model import Exact, Match, Prefix, Segments
from authplane.controlplane.graph.model.port_model import PlainPort, Port, SecurePort
from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.graph.model.route_model import NewPath, NewPrefix
from authplane.controlplane.graph.model.upstreams import ExternalName
from authplane.controlplane.status.status_json import Transitions
from authplane.core.problems import Problems
from authplane.core.timeouts import Disabled, UseDefault
from authplane.resources.kinds.gateway import (
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRouteMatch,
    RouteTimeouts,
)

NAMES = st.sampled_from(["*", "*.a", "*.b.a", "*.c.b.a", "a", "b.a", "c.b.a", "d.c.b.a", "x", "*.x"])


# --- Host names


@given(NAMES, NAMES, NAMES)
def test_names_that_cover_are_an_order_and_what_is_common_is_covered_by_both(one: str, two: str, three: str) -> None:
    assert covers(one, one)
    if covers(one, two) and covers(two, one):
        assert one == two
    if covers(one, two) and covers(two, three):
        assert covers(one, three)
    common = common_name(one, two)
    assert common == common_name(two, one)
    assert common is None or (covers(one, common) and covers(two, common))


@given(st.sets(NAMES), NAMES)
def test_the_closest_name_is_covered_by_all_others_that_cover(names: set[str], wanted: str) -> None:
    found = closest(names, wanted)
    covering = sorted((name for name in names if covers(name, wanted)), key=breadth)
    assert found == (covering[0] if covering else None)
    assert found is None or all(covers(name, found) for name in covering)


@pytest.mark.parametrize("name", ["", "*", "a..b", "-a", "a.*.b", "*a", "127.0.0.1", "::1", "a:80", "A", "a" * 254])
def test_what_is_not_a_host_name_is_refused(name: str) -> None:
    assert hostname_problem(name)


# --- Matches

PREFIXES = ["/", "/a", "/a/b", "/b"]
MATCHES = st.builds(
    HTTPRouteMatch,
    path=st.builds(HTTPPathMatch, type=st.sampled_from(["PathPrefix", "Exact"]), value=st.sampled_from(PREFIXES)),
    method=st.sampled_from(["", "GET"]),
    headers=st.lists(
        st.builds(HTTPHeaderMatch, name=st.sampled_from(["x", "y"]), value=st.just("1")),
        max_size=2,
        unique_by=lambda header: header.name,
    ).map(tuple),
    query_params=st.lists(st.builds(HTTPQueryParamMatch, name=st.just("q"), value=st.just("1")), max_size=1).map(tuple),
)


def specificity(match: HTTPRouteMatch) -> tuple[bool, int, bool, int, int]:
    """Write the Gateway API's order once more, the larger the earlier."""
    return (
        match.path.type == "Exact",
        len(match.path.value),
        match.method != "",
        len(match.headers),
        len(match.query_params),
    )


@given(MATCHES, MATCHES)
def test_the_more_specific_match_comes_first(one: HTTPRouteMatch, other: HTTPRouteMatch) -> None:
    first, second = (precedence(read_match(each, Problems())) for each in (one, other))
    assert (first < second) == (specificity(one) > specificity(other))


def test_a_prefix_is_whole_segments_and_its_last_slash_does_not_count() -> None:
    def path(value: str) -> Match:
        return read_match(HTTPRouteMatch(path=HTTPPathMatch(value=value)), Problems())

    assert [path(value).path for value in ("/", "/a", "/a/")] == [Prefix("/"), Segments("/a"), Segments("/a")]


def test_of_several_conditions_for_one_header_the_first_counts() -> None:
    headers = tuple(HTTPHeaderMatch(name=name, value=name) for name in ("X-One", "x-one", "two"))
    match = read_match(HTTPRouteMatch(headers=headers), Problems())
    assert [(each.name, each.text) for each in match.headers] == [("two", "two"), ("x-one", "X-One")]


@pytest.mark.parametrize(
    ("request_", "backend", "want"),
    [("", "", "UseDefault()"), ("0s", "", "Disabled()"), ("10s", "", "10"), ("", "1s", "1"), ("10s", "0s", "10")],
)
def test_timeouts_are_the_shorter_and_zero_is_none(request_: str, backend: str, want: str) -> None:
    problems = Problems()
    got = read_timeout(RouteTimeouts(request=request_, backend_request=backend), UseDefault(), problems)
    assert not problems
    shown = repr(got) if isinstance(got, UseDefault | Disabled) else f"{got.duration.total_seconds():g}"
    assert shown == want


@pytest.mark.parametrize("text", ["10", "1d", "-1s", "infinity", "1.5s", "123456s", "soon"])
def test_a_timeout_that_the_gateway_api_does_not_have_is_refused(text: str) -> None:
    problems = Problems()
    read_timeout(RouteTimeouts(request=text), UseDefault(), problems)
    assert [problem.reason for problem in problems] == ["UnsupportedValue"]


# --- Whole worlds


def gateway(*listeners: str, name: str = "edge", namespace: str = "default") -> str:
    written = "".join(f"  - {each}\n" for each in listeners)
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  listeners:
{written}"""


def route(name: str = "web", hosts: str = "[]", more: str = "", rule: str = "", created: str = "") -> str:
    time = f", creationTimestamp: '{created}'" if created else ""
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}{time}}}
spec:
  parentRefs: [{{name: edge{more}}}]
  hostnames: {hosts}
  rules: [{{{rule or "backendRefs: [{name: echo, port: 80}]"}}}]
"""


HTTP = "{name: http, port: 8000, protocol: HTTP}"
BACKEND = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: echo}
spec: {mcp: {serviceName: echo, port: 80}}
"""


def served(*documents: str) -> World:
    return World([ECHO, tls_secret("tls", server("a.example")), *documents])


def names(port: Port) -> dict[str, list[str]]:
    """Return the routes of each host."""
    return {host.name: [each.name.partition("#")[0] for each in host.routes] for host in hosts_on(port)}


class Mistake(NamedTuple):
    listener: str
    reason: str


MISTAKES = {
    "another protocol": Mistake("{name: x, port: 1, protocol: TLS}", "UnsupportedProtocol"),
    "an address as host": Mistake("{name: x, port: 1, protocol: HTTP, hostname: 10.0.0.1}", "Invalid"),
    "TLS without TLS": Mistake("{name: x, port: 1, protocol: HTTP, tls: {}}", "Invalid"),
    "passthrough": Mistake("{name: x, port: 1, protocol: HTTPS, tls: {mode: Passthrough}}", "Invalid"),
    "no certificate": Mistake("{name: x, port: 1, protocol: HTTPS}", "InvalidCertificateRef"),
    "a certificate that is none": Mistake(
        "{name: x, port: 1, protocol: HTTPS, tls: {certificateRefs: [{kind: ConfigMap, name: tls}]}}",
        "InvalidCertificateRef",
    ),
    "a name that stands twice": Mistake("{name: http, port: 1, protocol: HTTP}", "Invalid"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_costs_its_listener_alone(mistake: Mistake) -> None:
    world = served(gateway(HTTP, mistake.listener), route())
    assert [reason for reason, _ in world.problems("Gateway")] == [mistake.reason]
    assert [port.where.port for port in world.graph.gateways] == [8000]


def test_a_listener_that_cannot_be_served_keeps_its_host_from_wider_ones() -> None:
    """Otherwise a route of both would be reachable without what the narrow one asks of clients."""
    tls = "protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}"
    broken = "{name: strict, port: 8443, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: gone}]}}"
    world = served(gateway(f"{{name: wide, port: 8443, {tls}}}", broken), route(hosts="[a.example, b.example]"))
    [port] = world.graph.gateways
    assert isinstance(port, SecurePort)
    assert [(elsewhere(chain), sorted(host.name for host in chain.table.hosts)) for chain in port.chains] == [
        (("a.example",), ["*", "b.example"])
    ]
    plain = served(gateway(HTTP, "{name: strict, port: 8000, protocol: HTTP, hostname: a.example, tls: {}}"), route())
    [port] = plain.graph.gateways
    assert names(port) == {"*": ["default/web"], "a.example": []}


def test_a_port_is_shared_by_gateways_and_each_has_its_own_hosts() -> None:
    one = gateway("{name: http, port: 8000, protocol: HTTP, hostname: a.example}")
    two = gateway("{name: http, port: 8000, protocol: HTTP, hostname: b.example}", name="other")
    world = served(one, two, route(), route("other").replace("name: edge", "name: other"))
    [port] = world.graph.gateways
    assert names(port) == {"a.example": ["default/web"], "b.example": ["default/other"]}


def test_of_equal_matches_the_older_route_comes_first_then_the_name() -> None:
    documents = [route("a"), route("b", created="2026-01-02T00:00:00Z"), route("c", created="2026-01-01T00:00:00Z")]
    world = served(gateway(HTTP), *documents, route("d"))
    [port] = world.graph.gateways
    assert names(port) == {"*": ["default/c", "default/b", "default/a", "default/d"]}


def test_a_route_that_names_a_gateway_twice_is_attached_once() -> None:
    twice = route().replace("[{name: edge}]", "[{name: edge}, {name: edge, sectionName: http}]")
    [port] = served(gateway(HTTP), twice).graph.gateways
    assert names(port) == {"*": ["default/web"]}


def test_a_rule_without_backends_or_weights_is_answered_500_and_never_by_another() -> None:
    for rule in ("name: none", "backendRefs: [{name: echo, port: 80, weight: 0}]", "backendRefs: [{name: x, port: 1}]"):
        [port] = served(gateway(HTTP), route(rule=rule)).graph.gateways
        assert [[target.cluster for target in forward.targets] for forward in forwards_on(port)] == [[None]]


@pytest.mark.parametrize(
    ("path", "rewrite", "want"),
    [
        ("/tools", "{path: {type: ReplacePrefixMatch, replacePrefixMatch: /mcp/}}", NewPrefix("/mcp")),
        ("/tools", "{path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}}", NewPrefix("/")),
        # What was matched is the slash before the rest.
        ("/", "{path: {type: ReplacePrefixMatch, replacePrefixMatch: /mcp/}}", NewPrefix("/mcp/")),
        ("/", "{path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}}", NewPrefix("/")),
        ("/", "{path: {type: ReplaceFullPath, replaceFullPath: /mcp/}}", NewPath("/mcp/")),
        ("/", "{hostname: mcp.example}", None),
    ],
)
def test_what_takes_the_place_of_a_path(path: str, rewrite: str, want: NewPath | NewPrefix | None) -> None:
    rule = (
        f"matches: [{{path: {{value: {path}}}}}], filters: [{{type: URLRewrite, urlRewrite: {rewrite}}}], "
        "backendRefs: [{name: echo, port: 80}]"
    )
    [port] = served(gateway(HTTP), route(rule=rule)).graph.gateways
    assert [forward.rewrite for forward in forwards_on(port)] == [want]


@pytest.mark.parametrize(
    "rule",
    [
        "filters: [{type: URLRewrite}]",
        "filters: [{type: URLRewrite, urlRewrite: {}}, {type: URLRewrite, urlRewrite: {}}]",
        "filters: [{type: URLRewrite, urlRewrite: {hostname: '*.example'}}]",
        "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replacePrefixMatch: /a}}}]",
        "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: //a}}}]",
        "matches: [{path: {type: Exact, value: /a}}], "
        "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /a}}}]",
        "matches: [{path: {value: a}}]",
        "matches: [{method: get}]",
        "matches: [{headers: [{name: 'a b', value: x}]}]",
        "matches: [{headers: [{name: a, type: RegularExpression, value: '('}]}]",
        "matches: [{queryParams: [{name: a, value: 'é'}]}]",
        "timeouts: {request: 1s, backendRequest: 2s}",
    ],
)
def test_a_rule_that_cannot_be_as_it_is_written_costs_its_route(rule: str) -> None:
    world = served(gateway(HTTP), route(rule=f"{rule}, backendRefs: [{{name: echo, port: 80}}]"), route("good"))
    assert {reason for reason, _ in world.problems("HTTPRoute")} == {"UnsupportedValue"}
    [port] = world.graph.gateways
    assert names(port) == {"*": ["default/good"]}


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(
    ("spec", "reasons"),
    [
        ("{type: MCP, mcp: {serviceName: echo, port: 80}}", []),
        ("{mcp: {serviceName: echo, port: 80, path: /v2}}", []),
        ("{mcp: {hostname: mcp.example.com, port: 65535}}", []),
        ("{type: HTTP, mcp: {serviceName: echo, port: 80}}", ["FieldInvalid"]),
        ("{type: MCP}", ["FieldRequired"]),
        ("{mcp: {port: 80}}", ["FieldInvalid"]),
        ("{mcp: {serviceName: echo, hostname: mcp.example.com, port: 80}}", ["FieldInvalid"]),
        ("{mcp: {serviceName: echo}}", ["FieldRequired"]),
        ("{mcp: {serviceName: echo, port: 0}}", ["FieldInvalid"]),
        ("{mcp: {serviceName: echo, port: 65536}}", ["FieldInvalid"]),
        ("{mcp: {serviceName: echo, port: 80, path: 'mcp'}}", ["PathNotValid"]),
    ],
)
def test_a_backend_is_one_mcp_server_at_a_port_and_a_path(spec: str, reasons: list[str]) -> None:
    world = served(BACKEND.replace("{mcp: {serviceName: echo, port: 80}}", spec))
    assert [reason for reason, _ in world.problems("Backend")] == reasons
    rewrites = [forward.rewrite for port in world.graph.gateways for forward in forwards_on(port)]
    if not reasons:
        assert rewrites == [NewPrefix("/v2" if "/v2" in spec else "/mcp")]


@pytest.mark.requirement("R10")
def test_a_service_without_endpoints_is_looked_up_by_its_name_in_the_cluster() -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: tools}\nspec: {ports: [{port: 3001}]}"
    world = served(service, BACKEND.replace("{serviceName: echo, port: 80}", "{serviceName: tools, port: 3001}"))
    cluster = next(each for each in world.graph.clusters if each.name.startswith("backend/"))
    assert [(each.host, each.port) for each in cluster.destinations if isinstance(each, ExternalName)] == [
        ("tools.default.svc.cluster.local", 3001)
    ]


@pytest.mark.requirement("R11")
def test_the_status_of_a_backend_is_a_list_of_conditions_with_one_of_each_type() -> None:
    statuses = served(
        BACKEND, BACKEND.replace("name: echo}", "name: lost}").replace("serviceName: echo", "serviceName: x")
    )
    records = Transitions().records(statuses.generation.status(NoProxy()), datetime(2026, 1, 1, tzinfo=UTC))
    found = {each["metadata"]["name"]: each["status"] for each in records}
    assert [list(status) for status in found.values()] == [["conditions"], ["conditions"]]
    shown = {
        name: [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
        for name, status in found.items()
    }
    assert shown == {
        "echo": [
            ("ResolvedRefs", "True", "ResolvedRefs"),
            ("Protected", "False", "DeniedByDefault"),
            ("Programmed", "Unknown", "NoProxyConnected"),
        ],
        "lost": [
            ("ResolvedRefs", "False", "ServiceUnresolvedReference"),
            ("Protected", "False", "DeniedByDefault"),
            ("Programmed", "False", "NoRoute"),
        ],
    }


# --- The Gateway that nobody wrote


def test_without_a_gateway_document_there_is_one_for_backends() -> None:
    [port] = served(BACKEND).graph.gateways
    assert isinstance(port, PlainPort)
    assert [(each.match.path, each.name) for each in port.table.hosts[0].routes] == [
        (Segments("/default/echo"), "default/echo#^/default/echo")
    ]


@pytest.mark.parametrize(
    "document", [gateway(HTTP), "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nspec: 1"]
)
def test_any_gateway_document_takes_its_place_even_one_that_cannot_be_read(document: str) -> None:
    document = document.replace("spec: 1", "metadata: {name: torn}\nspec: 1")
    assert 8090 not in [port.where.port for port in served(BACKEND, document).graph.gateways]


def test_without_backends_there_is_none() -> None:
    assert served(route()).graph.gateways == ()


def test_a_configuration_that_cannot_be_used_serves_nothing() -> None:
    broken = (
        "apiVersion: authplane.dev/v1alpha1\nkind: AuthplaneConfiguration\nmetadata: {name: a}\nspec: {stric: true}"
    )
    world = served(broken, gateway(HTTP), route(), BACKEND)
    assert (world.graph.gateways, world.graph.clusters) == ((), ())
    assert [(each.type, each.reason) for each in world.status("Gateway", "edge").conditions] == [
        ("Accepted", "Accepted"),
        ("Programmed", "ConfigurationNotValid"),
    ]


def test_the_metadata_of_an_exact_path_is_left_to_who_serves_it() -> None:
    policy = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: p}
spec:
  targetRefs: [{kind: Gateway, name: edge}]
  rules: [{source: {type: OIDC, oidc: {issuerUrl: "https://issuer.example"}}}]
"""
    own = "/.well-known/oauth-protected-resource/mcp"
    rule = f"matches: [{{path: {{type: Exact, value: {own}}}}}], backendRefs: [{{name: echo, port: 80}}]"
    mcp = "matches: [{path: {value: /mcp}}], backendRefs: [{name: echo, port: 80}]"
    [port] = served(gateway(HTTP), route(rule=mcp), route("own", rule=rule), policy).graph.gateways
    exact = [each for each in hosts_on(port)[0].routes if each.match.path == Exact(own)]
    assert [each.name.partition("#")[0] for each in exact] == ["default/own"]
