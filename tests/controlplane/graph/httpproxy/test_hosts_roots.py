"""Which HTTPProxies are roots, which are part of one, and which are neither."""

import pytest
from tests.support.resources.contour_documents import PROXY, World, world
from tests.support.resources.graph_views import plain_hosts, secure_hosts

from authplane.controlplane.graph.model.programming import Answered
from authplane.core.names import ObjectName
from authplane.xds.server.served_types import TypeUrl

ORPHANED = ("Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy")
INCLUDES = "  includes:\n  - {name: team, namespace: team}\n"
TEAM = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: team, namespace: team}
spec:
  includes:
  - {name: deep, conditions: [{prefix: /deep}]}
"""
DEEP = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: deep, namespace: team}
spec:
  routes:
  - directResponsePolicy: {statusCode: 200}
"""


def roots_in(*namespaces: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec: {{httpproxy: {{rootNamespaces: [{", ".join(namespaces)}]}}}}
"""


def test_a_root_outside_the_namespaces_of_roots_is_withdrawn() -> None:
    made = world(settings=roots_in("roots"))
    assert made.problems("HTTPProxy") == [
        (
            "RootProxyNotAllowedInNamespace",
            "root HTTPProxy cannot be defined in this namespace. Move it to a root namespace.",
        )
    ]
    [error] = made.status("HTTPProxy", "web").conditions[0].errors
    assert error.type == "RootNamespaceError"
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_roots_may_be_in_any_of_the_namespaces() -> None:
    assert world(settings=roots_in("roots", "default")).secure() is not None


def test_who_may_not_be_a_root_cannot_keep_a_name_from_others() -> None:
    intruder = PROXY.replace("{name: web}", "{name: web, namespace: tenant}")
    made = world(intruder=intruder, settings=roots_in("default"))
    assert made.problems("HTTPProxy") == [
        (
            "RootProxyNotAllowedInNamespace",
            "root HTTPProxy cannot be defined in this namespace. Move it to a root namespace.",
        )
    ]
    secure = made.secure()
    assert secure is not None
    assert secure.host.proxies[0] == ObjectName("default", "web")


def test_who_may_not_be_a_root_cannot_keep_a_name_from_a_wildcard() -> None:
    intruder = PROXY.replace("{name: web}", "{name: web, namespace: tenant}")
    made = world(proxy=PROXY.replace("web.example", "'*.example'"), intruder=intruder, settings=roots_in("default"))
    secure = made.secure("*.example")
    assert secure is not None
    assert secure.elsewhere == ()


def test_an_error_of_a_proxy_that_may_not_be_a_root_does_not_affect_a_wildcard() -> None:
    unread = PROXY.replace("{name: web}", "{name: web, namespace: tenant}").replace("fqdn:", "fqdm:")
    wild = PROXY.replace("web.example", "'*.example'")
    assert world(proxy=wild, unread=unread).secure("*.example") is None
    assert world(proxy=wild, unread=unread, settings=roots_in("default")).secure("*.example") is not None


def test_what_only_such_a_root_includes_is_orphaned() -> None:
    made = world(proxy=PROXY + INCLUDES, team=TEAM, deep=DEEP, settings=roots_in("roots"))
    assert made.problems("HTTPProxy", "team") == [ORPHANED]
    assert made.problems("HTTPProxy", "deep") == [ORPHANED]


@pytest.mark.requirement("RB-3")
def test_what_no_root_includes_is_orphaned() -> None:
    made = world(team=TEAM, deep=DEEP)
    assert made.problems("HTTPProxy", "web") == []
    assert made.problems("HTTPProxy", "team") == [ORPHANED]
    assert made.problems("HTTPProxy", "deep") == [ORPHANED]


@pytest.mark.requirement("RB-3")
def test_what_a_root_includes_at_any_depth_is_not_orphaned() -> None:
    made = world(proxy=PROXY + INCLUDES, team=TEAM, deep=DEEP)
    assert made.problems("HTTPProxy") == []
    secure = made.secure()
    assert secure is not None
    assert secure.host.proxies[1:] == (ObjectName("team", "deep"), ObjectName("team", "team"))


def test_what_a_withdrawn_root_includes_is_valid_and_not_served() -> None:
    made = world(proxy=PROXY.replace("name: auth", "name: missing") + INCLUDES, team=TEAM, deep=DEEP)
    assert made.problems("HTTPProxy", "deep") == []
    assert programmed(made, "deep") == ("False", "RootNotServed")


def test_neither_a_host_nor_routes_is_orphaned() -> None:
    made = world(team=TEAM.split("spec:", maxsplit=1)[0] + "spec: {}\n")
    assert made.problems("HTTPProxy", "team") == [ORPHANED]


def test_a_root_with_nothing_is_withdrawn() -> None:
    made = world(proxy=PROXY.split("  routes:", maxsplit=1)[0])
    assert made.problems("HTTPProxy") == [
        ("NothingDefined", "HTTPProxy.Spec must have at least one Route, Include, or a TCPProxy. Add a route.")
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def programmed(made: World, name: str, answered: Answered | None = None) -> tuple[str, str]:
    [status] = [each for each in made.generation.status(answered or Answered()) if each.ref.name == name]
    [condition] = [each for each in status.conditions if each.type == "Programmed"]
    return condition.status, condition.reason


REFUSED = {
    "the listener": (TypeUrl.LISTENER, "ingress_https"),
    "the plain listener": (TypeUrl.LISTENER, "ingress_http"),
    "the routes": (TypeUrl.ROUTE, "https/web.example"),
    "the certificate": (TypeUrl.SECRET, "default/tls"),
    "the authorization service": (TypeUrl.CLUSTER, "extension/default/auth"),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("name", ["web", "team", "deep"])
def test_included_proxies_are_programmed_through_their_root(name: str, refused: tuple[TypeUrl, str]) -> None:
    made = world(proxy=PROXY + INCLUDES, team=TEAM, deep=DEEP)
    assert programmed(made, name) == ("True", "Programmed")
    assert programmed(made, name, Answered(refused={refused: "no"})) == ("False", "Rejected")
    assert programmed(made, name, Answered(pending=frozenset({refused}))) == ("Unknown", "Pending")
