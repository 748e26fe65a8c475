"""HTTPProxies and HTTPRoutes that say the same become the same values, and the same messages."""

from typing import Final

import pytest
from envoy.config.route.v3 import route_components_pb2 as pb
from tests.support.resources.contour_documents import ECHO, World
from tests.support.resources.graph_views import hosts_on

SAME: Final = {
    "everything": ("", "", ""),
    "a header": (
        "conditions: [{header: {name: x-a, exact: b}}]",
        "matches: [{headers: [{name: x-a, value: b}]}]",
        "",
    ),
    "an exact path": ("conditions: [{exact: /a}]", "matches: [{path: {type: Exact, value: /a}}]", ""),
    "a timeout": ("timeoutPolicy: {response: 3s}", "timeouts: {request: 3s}", ""),
    "another host": (
        "requestHeadersPolicy: {set: [{name: host, value: b.example}]}",
        "filters: [{type: URLRewrite, urlRewrite: {hostname: b.example}}]",
        "",
    ),
    "two shares": ("", "", "{name: echo, port: 80, weight: 3}"),
}
ALONE: Final = {name: case for name, case in SAME.items() if not case[2]}
"""Those with one backend: several are authorized each by itself behind Gateways."""


def world(proxy: str, route: str, second: str) -> World:
    services = ", ".join(each for each in ("{name: echo, port: 80, weight: 1}", second) if each)
    fields = [", ".join(each for each in (own, target) if each) for own, target in (
        (proxy, f"services: [{services}]"), (route, f"backendRefs: [{services}]")
    )]  # fmt: skip
    httpproxy = f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: same}}
spec: {{virtualhost: {{fqdn: a.example}}, routes: [{{{fields[0]}}}]}}
"""
    gateway = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec: {{listeners: [{{name: web, port: 8000, protocol: HTTP, hostname: a.example}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: same}}
spec: {{parentRefs: [{{name: edge}}], rules: [{{{fields[1]}}}]}}
"""
    return World([ECHO, httpproxy, gateway])


@pytest.mark.parametrize("case", ALONE.values(), ids=ALONE.keys())
def test_what_says_the_same_is_the_same_route(case: tuple[str, str, str]) -> None:
    made = world(*case)
    assert made.generation.findings == ()
    [proxied] = [host for port in made.graph.proxies for host in hosts_on(port)]
    [routed] = [host for port in made.graph.gateways for host in hosts_on(port)]
    assert proxied.routes == routed.routes


@pytest.mark.parametrize("case", SAME.values(), ids=SAME.keys())
def test_what_is_the_same_route_is_the_same_message(case: tuple[str, str, str]) -> None:
    tables = {each.name: each for each in world(*case).generation.rendered.routes}
    [proxied] = tables["ingress_http"].virtual_hosts
    [routed] = tables["gateway/8000"].virtual_hosts
    assert without_hosts(proxied) == without_hosts(routed)


def without_hosts(host: pb.VirtualHost) -> pb.VirtualHost:
    """Return a host whose shares say nothing of the host where they have nothing to say."""
    for route in host.routes:
        for share in route.route.weighted_clusters.clusters:
            if not share.host_rewrite_literal:
                share.ClearField("host_rewrite_literal")
    return host
