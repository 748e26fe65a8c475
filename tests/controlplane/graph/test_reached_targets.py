"""The targets that something leads to."""

from typing import Final

from tests.support.gateways.contour_gateway import service
from tests.support.policies.compiled import load
from tests.support.policies.documents import BACKEND, GATEWAY, OPEN, policy, rule
from tests.support.policies.names import EDGE, SHOP

from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.graph.reached_targets import reached_targets, routed_targets
from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import compile_policies

ROUTE: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]
  - matches: [{path: {value: /b}}]
    backendRefs: [{name: shop, port: 80}]
"""
SERVER: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: orders}
spec: {type: GRPC, grpc: {port: 50051}}
"""
WORLD: Final = (BACKEND, GATEWAY, ROUTE, SERVER, service("shop", 80))
KEYS: Final = {"https://issuer.example": '{"keys": []}'}
ORDERS: Final = RequestTarget(backend=Ref("Backend", "default", "orders"))
WAYS: Final = tuple(RequestTarget(backend=SHOP, gateway=EDGE, section=each) for each in ("web", "admin"))


def reached(*documents: str) -> dict[RequestTarget, frozenset[str]]:
    resources = load(*WORLD, *documents).resources
    built = build_graph(resources, policies=compile_policies(resources).policies, keys=KEYS)
    return dict(reached_targets(built.graph))


def test_targets_are_those_that_requests_are_checked_for_and_grpc_servers() -> None:
    known = frozenset(KEYS)
    assert reached(OPEN) == {ORDERS: frozenset()}
    assert reached() == {**dict.fromkeys(WAYS, frozenset[str]()), ORDERS: frozenset()}
    assert reached(policy(rule())) == {**dict.fromkeys(WAYS, known), ORDERS: frozenset()}


def test_behind_a_protected_gateway_a_service_is_a_target_too() -> None:
    found = reached(OPEN, policy(rule(), targets="[{kind: Gateway, name: edge, sectionName: web}]"))
    assert set(found) == {WAYS[0], RequestTarget(gateway=EDGE, section="web"), ORDERS}


def test_requests_come_to_targets_whether_they_are_checked_or_not() -> None:
    services = tuple(RequestTarget(gateway=EDGE, section=each) for each in ("web", "admin"))
    built = build_graph(load(*WORLD, OPEN).resources)
    assert set(routed_targets(built)) == {*WAYS, *services, ORDERS}


def test_documents_lead_to_targets_through_listeners_that_cannot_be_served() -> None:
    secure = GATEWAY.replace("protocol: HTTP}", "protocol: HTTPS, tls: {certificateRefs: [{name: lost}]}}")
    assert secure != GATEWAY
    built = build_graph(load(BACKEND, secure, ROUTE).resources)
    assert (built.graph.gateways, set(routed_targets(built)) >= set(WAYS)) == ((), True)


def test_the_gateway_that_nobody_wrote_leads_to_backends() -> None:
    default = RequestTarget(backend=SHOP, gateway=Ref("Gateway", "default", "authplane"), section="default")
    assert routed_targets(build_graph(load(BACKEND).resources)) == (default,)
