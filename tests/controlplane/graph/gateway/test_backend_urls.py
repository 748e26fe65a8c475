"""Backends with a URL: where Envoy connects, and where no Backend may lead."""

import pytest
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.model.upstreams import (
    CaFile,
    EndpointGroup,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    VerifiedTls,
)
from authplane.core.names import ObjectName, Ref
from authplane.resources.service_endpoints import Endpoint

TOOLS = ObjectName("default", "tools")


def world(url: str, settings: str = "") -> World:
    backend = f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: tools}}
spec: {{mcp: {{url: "{url}"}}}}
"""
    configuration = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{{settings}}}
"""
    return World([backend, configuration])


def cluster_of(made: World) -> ServiceCluster:
    target = made.generation.built.gateways.backends[Ref("Backend", "default", "tools")]
    assert target.own is not None
    return target.own


def test_an_address_needs_no_service_and_no_lookup() -> None:
    made = world("http://127.0.0.1:7000/mcp")
    assert cluster_of(made) == ServiceCluster(
        name="backend/Backend/default/tools",
        version=HttpVersion.HTTP1,
        tls=Plaintext(),
        destinations=(EndpointGroup(service=TOOLS, weight=1, endpoints=(Endpoint("127.0.0.1", 7000),)),),
    )
    assert not made.problems("Backend")
    assert made.status("Backend", "tools").conditions[0].status == "True"


def test_https_verifies_the_name_of_the_url() -> None:
    found = cluster_of(world("https://mcp.example.com/mcp", "gateway: {caFile: /ca.pem}"))
    assert found.tls == VerifiedTls(
        ca=CaFile("/ca.pem"), subject_names=("mcp.example.com",), server_name="mcp.example.com"
    )
    assert found.destinations == (
        ExternalName(service=TOOLS, weight=1, host="mcp.example.com", port=443, ipv4_first=True),
    )


def test_requests_go_to_the_path_of_the_url_under_the_name_of_the_url() -> None:
    made = world("http://localhost:7000/deep/mcp")
    target = made.generation.built.gateways.backends[Ref("Backend", "default", "tools")]
    assert (target.path, target.host) == ("/deep/mcp", "localhost:7000")


NEVER = (
    "http://169.254.169.254/latest",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://metadata.google.internal/",
    "http://169.254.169.254.nip.io/",
    "http://0.0.0.0:7000/",
    "http://[::]:7000/",
    "http://[::ffff:0.0.0.0]:7000/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://127.1/",
    "http://notes.default.svc/",
    "http://notes.default.svc.cluster.local/",
)


@pytest.mark.parametrize("url", NEVER)
@pytest.mark.parametrize(
    "settings", ["", "contour: {allowLocalExternalNames: true}", "gateway: {backendUrls: Allow}"]
)  # fmt: skip
@pytest.mark.requirement("BU-1")
def test_no_setting_lets_a_url_lead_to_metadata_or_the_link(url: str, settings: str) -> None:
    made = world(url, settings)
    [(reason, message)] = made.problems("Backend")
    assert reason == "UrlNotPermitted"
    assert message.rpartition(". ")[2].startswith("Use ")
    condition = made.status("Backend", "tools").conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("ResolvedRefs", "False", reason)
    assert "spec.mcp.url" in condition.message
    assert not [each for each in made.graph.clusters if isinstance(each, ServiceCluster)]


HERE, PLAIN, OUTSIDE = "http://127.0.0.1:7000/mcp", "http://a.example/mcp", "https://a.example/mcp"
RULES = {
    "gateway: {backendUrls: Allow}": {HERE, PLAIN, OUTSIDE},
    "": {HERE, PLAIN, OUTSIDE},
    "gateway: {backendUrls: HTTPSOnly}": {OUTSIDE},
    "gateway: {backendUrls: Deny}": set(),
    "contour: {enableExternalNameService: false}": {HERE},
}


@pytest.mark.parametrize("settings", RULES)
@pytest.mark.parametrize("url", [HERE, PLAIN, OUTSIDE, "https://localhost:1/mcp"])
def test_the_operator_says_which_urls_are_allowed(settings: str, url: str) -> None:
    allowed = {
        *RULES[settings],
        *({"https://localhost:1/mcp"} if HERE in RULES[settings] else ()),
    }
    problems = world(url, settings).problems("Backend")
    assert [reason for reason, _ in problems] == ([] if url in allowed else ["UrlNotPermitted"])


def test_a_path_that_no_origin_can_get_is_named_at_the_url() -> None:
    made = world("http://127.0.0.1:7000//mcp")
    [finding] = [each for each in made.generation.findings if each.ref is not None and each.ref.kind == "Backend"
                 and each.problem.severity.value == "error"]  # fmt: skip
    assert (finding.problem.path, finding.problem.reason) == (("spec", "mcp", "url"), "PathNotValid")
