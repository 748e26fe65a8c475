"""The clusters of the Services that routes lead to."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.resources.contour_documents import ECHO, PROXY, World, world

from authplane.controlplane.graph.model.route_model import Forward, Respond
from authplane.controlplane.graph.model.upstreams import (
    Breakers,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    UnverifiedTls,
    VerifiedTls,
)
from authplane.core.names import ObjectName
from authplane.core.timeouts import After

ROUTES = "  routes:\n  - services:\n    - {name: echo, port: 80}\n"
OUTSIDE = """
apiVersion: v1
kind: Service
metadata: {name: outside}
spec:
  type: ExternalName
  externalName: Origin.Example.
  ports: [{port: 443}]
"""
ENABLED = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec: {enableExternalNameService: true}
"""
VALIDATION = "validation: {caSecret: ca, subjectName: echo.example}"
NAME = "service/default/echo/80"


def routed(service: str, *, route: str = "", more: str = "", **changed: str) -> World:
    """Return the world with one route to a service; ``more`` routes stand beside it."""
    routes = f"[{{services: [{service}]{', ' + route if route else ''}}}{', ' + more if more else ''}]"
    return world(**({"proxy": PROXY.replace(ROUTES, f"  routes: {routes}\n")} | changed))


def echo(more: str = "") -> str:
    return f"{{name: echo, port: 80{', ' + more if more else ''}}}"


def clusters(made: World) -> list[ServiceCluster]:
    assert made.problems("HTTPProxy") == []
    return [cluster for cluster in made.graph.clusters if isinstance(cluster, ServiceCluster)]


class Protocol(NamedTuple):
    service: str
    name: str
    version: HttpVersion
    tls: type


PROTOCOLS = {
    "none": Protocol(echo(), NAME, HttpVersion.HTTP1, Plaintext),
    "h2c": Protocol(echo("protocol: h2c"), f"{NAME}/h2c", HttpVersion.HTTP2, Plaintext),
    "h2": Protocol(echo("protocol: h2"), f"{NAME}/h2", HttpVersion.HTTP2, UnverifiedTls),
    "tls": Protocol(echo("protocol: tls"), f"{NAME}/tls", HttpVersion.HTTP1, UnverifiedTls),
    "tls to somebody": Protocol(echo(f"protocol: tls, {VALIDATION}"), f"{NAME}/tls/", HttpVersion.HTTP1, VerifiedTls),
    "h2 to somebody": Protocol(echo(f"protocol: h2, {VALIDATION}"), f"{NAME}/h2/", HttpVersion.HTTP2, VerifiedTls),
}


@pytest.mark.parametrize("case", PROTOCOLS.values(), ids=PROTOCOLS.keys())
def test_a_service_is_spoken_to_as_the_route_says(case: Protocol) -> None:
    [cluster] = clusters(routed(case.service))
    assert (cluster.version, type(cluster.tls)) == (case.version, case.tls)
    assert cluster.name == case.name or (case.name.endswith("/") and len(cluster.name) == len(case.name) + 10)
    assert cluster.name.startswith(case.name)


@pytest.mark.parametrize(("listed", "want"), [("'80'", "/tls"), ("http", "/tls"), ("81, http", "/tls"), ("'81'", "")])
def test_a_service_may_say_itself_what_it_speaks(listed: str, want: str) -> None:
    annotated = ECHO.replace(
        "{name: echo}", f"{{name: echo, annotations: {{projectcontour.io/upstream-protocol.tls: {listed!s}}}}}"
    ).replace("81, http", "'81, http'")
    assert [cluster.name for cluster in clusters(routed(echo(), echo=annotated))] == [NAME + want]
    overruled = routed(echo("protocol: h2c"), echo=annotated)
    assert [cluster.name for cluster in clusters(overruled)] == [f"{NAME}/h2c"]


def test_whom_to_believe_is_part_of_a_cluster() -> None:
    made = routed(echo(f"protocol: tls, {VALIDATION}"))
    [cluster] = clusters(made)
    assert isinstance(cluster.tls, VerifiedTls)
    assert (cluster.tls.subject_names, cluster.tls.server_name) == (("echo.example",), "echo.example")
    assert made.warnings("HTTPProxy") == []
    assert [reason for reason, _ in routed(echo("protocol: tls")).warnings("HTTPProxy")] == ["UpstreamNotVerified"]


BAD = {
    "validation without TLS": (
        echo(VALIDATION),
        ("ServiceError", "InconsistentProtocol", 'upstream TLS validation not supported for "http/1.1" protocol'),
    ),
    "validation of h2c": (
        echo(f"protocol: h2c, {VALIDATION}"),
        ("ServiceError", "InconsistentProtocol", 'upstream TLS validation not supported for "h2c" protocol'),
    ),
    "no such CA": (
        echo("protocol: tls, validation: {caSecret: gone, subjectName: echo.example}"),
        (
            "ServiceError",
            "TLSUpstreamValidation",
            "Service [echo:80] TLS upstream validation policy error: "
            'invalid CA Secret "default/gone": Secret not found',
        ),
    ),
    "a CA of others": (
        echo("protocol: tls, validation: {caSecret: other/ca, subjectName: echo.example}"),
        (
            "TLSError",
            "CACertificateNotDelegated",
            'service.UpstreamValidation.CACertificate Secret "other/ca" is not configured for certificate delegation',
        ),
    ),
}


@pytest.mark.parametrize(("service", "want"), BAD.values(), ids=BAD.keys())
def test_tls_that_cannot_be_as_it_is_written_withdraws_the_host(service: str, want: tuple[str, str, str]) -> None:
    made = routed(service)
    assert made.problems("HTTPProxy") == [want[1:]]
    assert made.secure() is None
    [error] = made.status("HTTPProxy", "web").conditions[0].errors
    assert (error.type, error.reason, error.message) == want


def test_every_route_that_asks_for_the_impossible_is_told() -> None:
    made = routed("{name: gone, port: 80}", more="{conditions: [{prefix: /b}], services: [{name: gone, port: 80}]}")
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["ServiceUnresolvedReference"] * 2


def test_equal_wishes_share_a_cluster_and_others_have_their_own() -> None:
    slow = "timeoutPolicy: {idleConnection: 10s}"
    made = routed(
        echo(),
        more=", ".join(
            f"{{conditions: [{{prefix: /{index}}}], services: [{echo()}], {policy}}}"
            for index, policy in enumerate(
                [
                    "loadBalancerPolicy: {strategy: Random}",
                    "timeoutPolicy: {response: 3s}",
                    slow,
                    slow,
                    "requestHeadersPolicy: {set: [{name: Host, value: other.example}]}",
                ]
            )
        ),
    )
    found = clusters(made)
    assert found[0].name == NAME
    assert sorted((each.balancing.value, str(each.idle_connection_timeout)) for each in found) == [
        ("Random", "UseDefault()"),
        ("RoundRobin", str(After(timedelta(seconds=10)))),
        ("RoundRobin", "UseDefault()"),
    ]


@pytest.mark.parametrize("strategy", ["Cookie", "RequestHash", "Nonsense"])
def test_a_way_to_balance_that_is_not_supported_is_a_warning(strategy: str) -> None:
    made = routed(echo(), route=f"loadBalancerPolicy: {{strategy: {strategy}}}")
    assert made.warnings("HTTPProxy") == [
        (
            "IgnoredField",
            f'ignoring field "Spec.Routes.LoadBalancerPolicy"; {strategy} load balancer policy is not '
            "supported. Use RoundRobin, WeightedLeastRequest or Random.",
        )
    ]
    assert [cluster.name for cluster in clusters(made)] == [NAME]


class Outside(NamedTuple):
    service: str
    route: str
    server_name: str


OUTSIDES = {
    "its own name": Outside("protocol: tls", "", "origin.example"),
    "the name that the origin is told": Outside(
        "protocol: h2", "requestHeadersPolicy: {set: [{name: Host, value: 'www.example:8443'}]}", "www.example"
    ),
    "no address": Outside("protocol: tls", "requestHeadersPolicy: {set: [{name: Host, value: 192.0.2.1}]}", ""),
}


@pytest.mark.parametrize("case", OUTSIDES.values(), ids=OUTSIDES.keys())
def test_a_name_outside_is_looked_up_and_asked_for(case: Outside) -> None:
    made = routed(f"{{name: outside, port: 443, {case.service}}}", route=case.route, outside=OUTSIDE, settings=ENABLED)
    [cluster] = clusters(made)
    assert cluster.destinations == (
        ExternalName(service=ObjectName("default", "outside"), weight=1, host="origin.example", port=443),
    )
    assert isinstance(cluster.tls, UnverifiedTls)
    assert cluster.tls.server_name == case.server_name


def test_a_name_outside_does_not_change_the_host() -> None:
    made = routed("{name: outside, port: 443}", outside=OUTSIDE, settings=ENABLED)
    secure = made.secure()
    assert secure is not None
    action = secure.host.routes[0].action
    assert isinstance(action, Forward)
    assert action.host == ""


DISABLED = {
    "unset": "",
    "false": ENABLED.replace("true", "false"),
    "only local names": """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: gateway}
spec: {contour: {allowLocalExternalNames: true}}
""",
}


@pytest.mark.requirement("T03")
@pytest.mark.parametrize("settings", DISABLED.values(), ids=DISABLED.keys())
def test_routes_lead_to_no_name_outside_unless_it_is_enabled(settings: str) -> None:
    made = routed("{name: outside, port: 443}", outside=OUTSIDE, settings=settings)
    assert made.problems("HTTPProxy") == [
        (
            "ServiceUnresolvedReference",
            "Spec.Routes unresolved service reference: default/outside is an ExternalName service, "
            "which is not allowed. Set enableExternalNameService: true.",
        )
    ]
    secure = made.secure()
    assert secure is not None
    assert [route.action for route in secure.host.routes] == [Respond(status=503)]
    assert not [cluster for cluster in made.graph.clusters if isinstance(cluster, ServiceCluster)]


@pytest.mark.requirement("T03")
@pytest.mark.parametrize("name", ["localhost", "localtest.me", "o1.victim.svc.cluster.local", "64:ff9b::7f00:1"])
def test_a_name_that_leads_here_or_into_the_cluster_is_refused(name: str) -> None:
    outside = OUTSIDE.replace("Origin.Example.", f"'{name}'")
    made = routed("{name: outside, port: 443}", outside=outside, settings=ENABLED)
    [(reason, message)] = made.problems("HTTPProxy")
    assert reason == "ServiceUnresolvedReference"
    assert message.endswith("this is not allowed. Use an EndpointSlice.")


SETTINGS = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec:
  envoy:
    timeouts: {connectTimeout: 7s}
    cluster: {circuitBreakers: {maxConnections: 5, maxRequests: 6}}
"""


def test_limits_are_those_of_the_gateway_unless_the_service_has_its_own() -> None:
    annotated = ECHO.replace(
        "{name: echo}",
        "{name: echo, annotations: {projectcontour.io/max-connections: '9', projectcontour.io/max-retries: 'many'}}",
    )
    [cluster] = clusters(routed(echo(), settings=SETTINGS))
    assert (cluster.breakers, cluster.connect_timeout) == (
        Breakers(connections=5, requests=6),
        After(timedelta(seconds=7)),
    )
    made = routed(echo(), settings=SETTINGS, echo=annotated)
    [cluster] = clusters(made)
    assert cluster.breakers == Breakers(connections=9, requests=6)
    assert made.warnings("HTTPProxy") == [
        (
            "IgnoredField",
            'ignoring annotation "projectcontour.io/max-retries" of Service "default/echo"; it is not '
            "a number. Correct it.",
        )
    ]


def test_the_name_of_a_cluster_does_not_depend_on_what_the_whole_gateway_sets() -> None:
    service = echo(f"protocol: tls, {VALIDATION}")
    assert clusters(routed(service))[0].name == clusters(routed(service, settings=SETTINGS))[0].name
