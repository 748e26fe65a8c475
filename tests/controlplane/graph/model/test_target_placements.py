"""What proxies are told of the policies before targets, one build after another."""

import pytest
from tests.controlplane.render.test_native_filters import managers
from tests.support.policies.documents import settings
from tests.support.resources.contour_documents import ECHO
from tests.support.resources.contour_documents import World as OneBuild

from authplane.controlplane.graph.gateway.protection import NO_TOKENS, Tokens, read_protection
from authplane.controlplane.graph.model.target_placements import PlacementMemory, Placements
from authplane.controlplane.graph.reached_targets import reached_placings
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ
from authplane.controlplane.render.native.native_filters import DECIDE
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.names import ObjectName, Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import compile_policies
from authplane.sources.document_versions import Library

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 8001, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {mcp: {serviceName: echo, port: 80}}
"""
POLICY = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: XAccessPolicy
metadata: {name: p}
spec:
  targetRefs: [{kind: Backend, name: shop}]
  rules:
  - authorization:
    - {type: Inline, paths: [/mcp], mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}}
"""
UNUSABLE = settings("{issuers: [{url: 'http://issuer.example'}]}")
"""Can be read, and makes no settings."""
WHERE = ("Backend/default/shop", "Gateway/default/edge/web")
SHOP = RequestTarget(
    backend=Ref("Backend", "default", "shop"), gateway=Ref("Gateway", "default", "edge"), section="web"
)


def library(*documents: str) -> Library:
    made = Library()
    made.changed("a.yaml", "\n---\n".join((ECHO, GATEWAY, *documents)).encode())
    return made


def filters(generation: Generation) -> set[str]:
    """Return the filters that decide or ask, of all listeners."""
    found = {each.name for manager in managers(generation.rendered) for each in manager.http_filters}
    return found & {DECIDE, EXT_AUTHZ}


def test_policies_that_turn_closed_leave_everything_to_the_policy_server() -> None:
    written = library(POLICY)
    good = build_generation(written.current())
    assert reached_placings(good.built.graph)[SHOP] is not None
    assert filters(good) == {DECIDE, EXT_AUTHZ}
    written.changed("b.yaml", UNUSABLE.encode())
    closed = build_generation(written.current(), good)
    assert closed.compiled.policies.closed
    assert reached_placings(closed.built.graph) == {SHOP: None}
    assert filters(closed) == {EXT_AUTHZ}
    written.removed("b.yaml")
    again = build_generation(written.current(), closed)
    assert filters(again) == {DECIDE, EXT_AUTHZ}


def test_what_stood_before_a_target_is_kept_only_for_the_same_policies_settings_and_keys() -> None:
    policies = compile_policies(library(POLICY).current().resources).policies
    other = compile_policies(library(POLICY.replace("/mcp", "/other")).current().resources).policies
    strict = compile_policies(library(POLICY, settings("{placement: CallOut}")).current().resources).policies
    memory = PlacementMemory()
    first = Placements(policies, {"https://a": "{}"}, memory)
    placing = first[WHERE]
    assert placing is not None
    assert placing.keys == {"https://a"}
    assert (list(first), len(first)) == ([WHERE], 1)
    assert Placements(policies, {"https://a": "{}"}, memory)[WHERE] is placing
    for changed, keys in (
        (other, {"https://a": "{}"}),
        (strict, {"https://a": "{}"}),
        (policies, {"https://b": "{}"}),
        (policies, None),
    ):
        memory = PlacementMemory()
        placing = Placements(policies, {"https://a": "{}"}, memory)[WHERE]
        found = Placements(changed, keys, memory)[WHERE]
        assert found is not None
        assert found is not placing
    assert Placements(None, {"https://a": "{}"}, memory)[WHERE] is None


def test_nothing_stands_before_what_no_policy_names() -> None:
    policies = compile_policies(library().current().resources).policies
    found = Placements(policies)
    assert (found[WHERE], found[None, "Gateway/default/edge/web"], found["elsewhere", None]) == (None, None, None)
    memory = PlacementMemory()
    assert [Placements(policies, memory=memory)[WHERE] for _ in range(2)] == [None, None]


@pytest.mark.parametrize(
    "url", ["not an address", "http://issuer.example", "https://", "https://issuer.example?a", "https://a b", ""]
)
def test_an_issuer_that_cannot_be_told_leaves_the_build_standing_and_its_backend_protected(url: str) -> None:
    oidc = f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: q}}
spec:
  targetRefs: [{{kind: Backend, name: shop}}]
  rules:
  - {{source: {{type: OIDC, oidc: {{issuerUrl: '{url}', audiences: [a], scopes: [s]}}}}, tools: [add]}}
"""
    shop = ObjectName("default", "shop")
    assert read_protection(library(oidc).current().resources).backend(shop) == NO_TOKENS
    beside = "  - {source: {type: OIDC, oidc: {issuerUrl: 'https://b.example', scopes: [t]}}, tools: [add]}\n"
    both = read_protection(library(oidc + beside).current().resources).backend(shop)
    if url:
        assert both == Tokens(issuers=("https://b.example",), scopes=("t",))
    built = OneBuild([ECHO, GATEWAY, oidc])
    assert built.problems("AccessPolicy", "q") != []
    assert filters(built.generation) == {EXT_AUTHZ}
