"""What policies in shadow name: it is known, and it is protected by nobody."""

import pytest
from tests.support.policies.compiled import load
from tests.support.policies.documents import OPEN
from tests.support.resources.contour_documents import ECHO, World
from tests.support.resources.graph_views import authorizations_on

from authplane.controlplane.graph.gateway.protection import NO_TOKENS, Protection, Tokens, read_protection
from authplane.controlplane.graph.model.grpc_servers import Judged, Open
from authplane.controlplane.graph.model.route_authorization import Enforced, Shadow
from authplane.core.names import ObjectName

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: one, port: 8001, protocol: HTTP}, {name: two, port: 8002, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: mcp}]}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: mcp}
spec: {mcp: {serviceName: echo, port: 80}}
"""
MCP, EDGE = ObjectName("default", "mcp"), ObjectName("default", "edge")
TO_MCP, TO_EDGE = "{kind: Backend, name: mcp}", "{kind: Gateway, name: edge}"
OIDC = "[{source: {type: OIDC, oidc: {issuerUrl: 'https://issuer.example', scopes: [a]}}, tools: [add]}]"


def policy(target: str, mode: str, *, name: str = "p", rules: str = OIDC) -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: {name}}}
spec: {{mode: {mode}, targetRefs: [{target}], rules: {rules}}}
"""


def protection(*documents: str) -> Protection:
    return read_protection(load(ECHO, GATEWAY, *documents).resources)


def test_a_backend_that_only_policies_in_shadow_name_is_not_protected_and_asks_for_no_tokens() -> None:
    found = protection(policy(TO_MCP, "Shadow"))
    assert (found.backend(MCP), found.shadows_backend(MCP)) == (None, True)
    assert (found.listener(EDGE, "one"), found.shadows_listener(EDGE, "one")) == (None, False)


def test_a_backend_can_have_both_and_asks_for_the_tokens_of_what_is_enforced() -> None:
    enforced = policy(TO_MCP, "Enforce", name="e", rules="[]")
    found = protection(policy(TO_MCP, "Shadow"), enforced)
    assert (found.backend(MCP), found.shadows_backend(MCP)) == (NO_TOKENS, True)
    found = protection(policy(TO_MCP, "Enforce"))
    assert (found.backend(MCP), found.shadows_backend(MCP)) == (
        Tokens(issuers=("https://issuer.example",), scopes=("a",)),
        False,
    )


SECTIONS = {"one": [True, False], "two": [False, True], "": [True, True], "none": [True, True]}


@pytest.mark.parametrize(("section", "want"), SECTIONS.items())
def test_a_listener_is_shadowed_as_it_would_be_protected(section: str, want: list[bool]) -> None:
    target = f"{TO_EDGE[:-1]}, sectionName: '{section}'}}"
    shadowed = protection(policy(target, "Shadow"))
    enforced = protection(policy(target, "Enforce"))
    assert [shadowed.shadows_listener(EDGE, name) for name in ("one", "two")] == want
    assert [shadowed.listener(EDGE, name) for name in ("one", "two")] == [None, None]
    assert [enforced.listener(EDGE, name) is not None for name in ("one", "two")] == want


def test_a_policy_whose_mode_cannot_be_read_protects() -> None:
    found = protection(policy(TO_MCP, "Shade"))
    assert (found.backend(MCP), found.shadows_backend(MCP)) == (NO_TOKENS, False)


@pytest.mark.parametrize("target", [TO_MCP, TO_EDGE])
def test_nothing_is_enforced_where_policies_are_in_shadow(target: str) -> None:
    world = World([OPEN, ECHO, GATEWAY, policy(target, "Shadow")])
    found = authorizations_on(world.graph.gateways)
    assert found
    assert not any(isinstance(each, Enforced) and each.service.on_failure != Shadow() for each in found)


def test_a_grpc_server_with_policies_in_shadow_alone_stays_open() -> None:
    cart = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: cart}
spec: {type: GRPC, grpc: {port: 50051}}
"""
    rules = "[{authorization: [{type: Inline, paths: [/a]}]}]"
    shadowed, enforced = (
        World([OPEN, ECHO, cart, policy("{kind: Backend, name: cart}", mode, rules=rules)])
        .graph.grpc_servers[0]
        .authorization
        for mode in ("Shadow", "Enforce")
    )
    assert shadowed == Open()
    assert isinstance(enforced, Judged)
