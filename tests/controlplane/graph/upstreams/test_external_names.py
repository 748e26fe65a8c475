"""Where an ExternalName Service may lead."""

from typing import Final

import pytest
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.settings.gateway_settings import ExternalNames, NameRules
from authplane.controlplane.graph.upstreams.external_names import external_host, external_name_problem

ELSEWHERE: Final = NameRules(allowed=ExternalNames.ELSEWHERE)
ANYWHERE: Final = NameRules(allowed=ExternalNames.ANYWHERE)
CLUSTER: Final = (
    "is an ExternalName service that points to a DNS name inside the cluster, this "
    "is not allowed. Use an EndpointSlice."
)
WRITTEN: Final = (
    "is an ExternalName service that points to an address that the name contains, this "
    "is not allowed. Use an EndpointSlice."
)
LOCALHOST: Final = "is an ExternalName service that points to localhost, this is not allowed. Use an EndpointSlice."
LINK: Final = (
    "is an ExternalName service that points to a link-local address, this is not allowed. Use an EndpointSlice."
)
METADATA: Final = (
    "is an ExternalName service that points to a cloud metadata address, this is not allowed. Use an EndpointSlice."
)

LOCAL: Final = {
    "localhost": LOCALHOST,
    "localhost.": LOCALHOST,
    "LocalHost": LOCALHOST,
    "localhost.localdomain": LOCALHOST,
    "localhost.localdomain.": LOCALHOST,
    "local.projectcontour.io": LOCALHOST,
    "local.projectcontour.io.": LOCALHOST,
    "ip6-localhost": LOCALHOST,
    "any.localhost": LOCALHOST,
    "127.0.0.1": LOCALHOST,
    "127.0.0.1.": LOCALHOST,
    "127.8.9.1": LOCALHOST,
    "0.0.0.0": LOCALHOST,
    "::1": LOCALHOST,
    "0:0:0:0:0:0:0:1": LOCALHOST,
    "::": LOCALHOST,
    "::ffff:127.0.0.1": LOCALHOST,
    "64:ff9b::7f00:1": LOCALHOST,
    "64:ff9b::127.0.0.1": LOCALHOST,
    "64:ff9b:1::7f00:1": LOCALHOST,
    "2002:7f00:1::": LOCALHOST,
    "2002:7f00:0001:1::1": LOCALHOST,
    "::127.0.0.1": LOCALHOST,
    "2001:0:c000:201::80ff:fffe": LOCALHOST,
    "64:ff9b::a9fe:a9fe": LINK,
    "2002:a9fe:a9fe::": LINK,
    "64:ff9b::6464:64c8": METADATA,
    "169.254.169.254": LINK,
    "fe80::1": LINK,
    "::ffff:169.254.169.254": LINK,
    "metadata.google.internal": METADATA,
    "localtest.me": LOCALHOST,
    "a.B.localtest.me.": LOCALHOST,
    "x.lvh.me": LOCALHOST,
    "127.0.0.1.nip.io": WRITTEN,
    "127-0-0-1.sslip.io": WRITTEN,
    "o1.victim.svc": CLUSTER,
    "o1.victim.svc.": CLUSTER,
    "o1.victim.SVC.Cluster.Local": CLUSTER,
    "o1.victim.svc.cluster.local.": CLUSTER,
    "10-0-0-1.victim.pod.cluster.local": CLUSTER,
    "cluster.local": CLUSTER,
    "svc": CLUSTER,
    "fd00:ec2::254": METADATA,
}


@pytest.mark.requirement("ES-21")
@pytest.mark.requirement("T03")
@pytest.mark.parametrize(("written", "problem"), LOCAL.items(), ids=LOCAL.keys())
def test_a_local_destination_is_refused_unless_the_operator_allows_it(written: str, problem: str) -> None:
    assert external_name_problem(written, ELSEWHERE) == problem
    assert not external_name_problem(written, ANYWHERE)


@pytest.mark.parametrize(
    "written",
    [
        "auth.example.com",
        "auth.example.com.",
        "AUTH.example.com",
        "auth",
        "_grpc.auth.example",
        "xn--bcher-kva.example",
        "localhost.example.com",
        "notlocalhost",
        "notlocaltest.me",
        "svc.example.com",
        "o1.svc.example.com",
        "mycluster.local",
        "10.0.0.7",
        "2001:db8::7",
        "64:ff9b::0808:0808",
        "2002:0808:0808::1",
    ],
)
def test_other_names_and_addresses_are_accepted(written: str) -> None:
    assert not external_name_problem(written, ELSEWHERE)


NOT_NAMES: Final = [
    "",
    ".",
    "auth..example",
    "auth.example..",
    "-auth.example",
    "auth-.example",
    "auth example",
    "auth.example:9443",
    "https://auth.example",
    "auth.example/x",
    "user@auth.example",
    "bücher.example",
    "auth\n.example",
    "*.example",
    "[::1]",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "auth.example.7",
    "a" * 64 + ".example",
    ".".join(["a" * 60] * 5),
]


@pytest.mark.parametrize("written", NOT_NAMES)
@pytest.mark.parametrize("rules", [ELSEWHERE, ANYWHERE])
def test_what_is_no_dns_name_is_refused_always(written: str, rules: NameRules) -> None:
    problem = external_name_problem(written, rules)
    assert problem == f"is an ExternalName service whose externalName {written!r} is not a DNS name. Correct it."


@pytest.mark.requirement("T03")
def test_the_domain_of_the_cluster_may_be_another() -> None:
    rules = NameRules(cluster_domain="Corp.internal")
    assert external_name_problem("o1.victim.svc.corp.internal", rules) == CLUSTER
    assert external_name_problem("o1.victim.svc", rules) == CLUSTER
    assert not external_name_problem("o1.victim.svc.cluster.local", rules)


def test_the_host_is_the_name_in_lower_case_without_the_dot_at_its_end() -> None:
    assert external_host("Auth.Example.COM.") == "auth.example.com"


ROUTED: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: only, port: 8000, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: outside, port: 443}]}]
---
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: ExternalName, externalName: origin.example}
---
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec: {enableExternalNameService: true}
"""


@pytest.mark.requirement("T03")
def test_an_http_route_leads_to_a_name_outside_only_if_it_is_enabled() -> None:
    enabled, disabled = World([ROUTED]), World([ROUTED.replace("true", "false")])
    assert [cluster.name for cluster in enabled.graph.clusters] == ["service/default/outside/443"]
    assert disabled.graph.clusters == ()
    assert [reason for reason, _ in disabled.problems("HTTPRoute")] == ["BackendNotFound"]
