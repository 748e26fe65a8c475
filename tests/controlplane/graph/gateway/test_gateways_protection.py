"""Where requests are checked: whatever a policy may have been meant for, and with a context that names the target."""

import pytest
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY, World, secrets
from tests.support.resources.graph_views import authorizations_on, hosts_on, plain_hosts

from authplane.controlplane.graph.gateway import route_entries
from authplane.controlplane.graph.model.route_authorization import (
    CheckedBody,
    Enforced,
    FailClosed,
    RouteAuthorization,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward
from authplane.controlplane.graph.upstreams.policy_connection import POLICY_CLUSTER
from authplane.controlplane.status import gateway_status
from authplane.core.names import Ref
from authplane.policy.attached import request_target
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.request_target import parse_target
from authplane.policy.check import check_context
from authplane.policy.compile import compile_policies as compiling

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  listeners:
  - {name: one, port: 8001, protocol: HTTP}
  - {name: two, port: 8002, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {value: /backend}}]
    backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: mcp}]
  - matches: [{path: {value: /old}}]
    backendRefs: [{group: agentic.networking.x-k8s.io, kind: XBackend, name: old}]
  - matches: [{path: {value: /service}}]
    backendRefs: [{name: echo, port: 80}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: mcp}
spec: {mcp: {serviceName: echo, port: 80}}
---
apiVersion: agentic.networking.x-k8s.io/v0alpha0
kind: XBackend
metadata: {name: old}
spec: {mcp: {serviceName: echo, port: 80}}
"""


OPEN = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: a}
spec: {unprotectedBackends: Allow}
"""


def policy(targets: str, *, namespace: str = "default", rules: str = "[]", kind: str = "AccessPolicy") -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: {kind}
metadata: {{name: p, namespace: {namespace}}}
spec:
  targetRefs: {targets}
  rules: {rules}
"""


def authorizations(*documents: str) -> dict[str, RouteAuthorization]:
    """Return who checks each path on each port."""
    world = World([ECHO, GATEWAY, *documents])
    return {
        f"{port.where.port}{route.match.path.path}": route.authorizations[0]
        for port in world.graph.gateways
        for host in hosts_on(port)
        for route in host.routes
        if isinstance(route.action, Forward)
    }


def checked(*documents: str) -> list[str]:
    return [place for place, found in authorizations(*documents).items() if isinstance(found, Enforced)]


BACKEND = ["8001/backend", "8002/backend"]
OLD = ["8001/old", "8002/old"]
FIRST = ["8001/service", "8001/backend", "8001/old"]
SECOND = ["8002/service", "8002/backend", "8002/old"]

CASES = {
    "a Backend": (policy("[{kind: Backend, name: mcp}]"), BACKEND),
    "an XBackend": (policy("[{kind: XBackend, name: old}]"), OLD),
    "a later kind of policy": (policy("[{kind: XBackend, name: old}]", kind="XAccessPolicy"), OLD),
    "a Gateway": (policy("[{kind: Gateway, name: edge}]"), FIRST + SECOND),
    "a listener": (policy("[{kind: Gateway, name: edge, sectionName: two}]"), SECOND),
    "a listener that is not there": (policy("[{kind: Gateway, name: edge, sectionName: x}]"), FIRST + SECOND),
    "a Backend of another namespace": (policy("[{kind: Backend, name: mcp}]", namespace="other"), []),
    "no target": (policy("[]"), []),
    "a Backend of another group": (policy("[{group: apps, kind: Backend, name: mcp}]"), BACKEND),
    "a kind in lower case": (policy("[{kind: backend, name: mcp}]"), BACKEND),
    "a kind in the plural, with a mistake": (policy("[{kind: Gateways, name: edge}]", rules="7"), FIRST + SECOND),
    "a policy with a mistake": (policy("[{kind: Backend, name: mcp}]", rules="[{source: {type: X}}]"), BACKEND),
    "a policy with an unknown field": (policy("[{kind: Gateway, name: edge}]", rules="[{sources: 1}]"), FIRST + SECOND),
    "a policy of an unknown version": (policy("[{kind: Backend, name: mcp}]").replace("v1alpha1", "v9"), BACKEND),
    "a policy that cannot be read": (policy("7"), FIRST + SECOND),
    "one of another namespace that cannot be read": (policy("7", namespace="other"), []),
    "a text that may be a policy": ("kind: AccessPolicy\nmetadata: {name", FIRST + SECOND),
}


@pytest.mark.parametrize(("document", "want"), CASES.values(), ids=CASES.keys())
def test_what_a_policy_may_have_been_meant_for_is_checked(document: str, want: list[str]) -> None:
    assert sorted(checked(OPEN, document)) == sorted(want)


@pytest.mark.parametrize("document", ["", OPEN.replace("Allow", "Deny")], ids=["by default", "as it is written"])
def test_unprotected_backends_are_checked_and_plain_services_are_not(document: str) -> None:
    assert sorted(checked(document)) == sorted(BACKEND + OLD)


def test_a_check_has_the_whole_body_and_fails_closed() -> None:
    found = authorizations(policy("[{kind: Backend, name: mcp}]"))
    assert found["8001/service"] == Unprotected()
    enforced = found["8001/backend"]
    assert isinstance(enforced, Enforced)
    assert (enforced.service.cluster, enforced.service.on_failure, enforced.service.body) == (
        POLICY_CLUSTER,
        FailClosed(status=503),
        CheckedBody(most_bytes=65536, partial=False, as_bytes=True),
    )


def test_whoever_decides_reads_the_target_from_the_context() -> None:
    assert (route_entries.TARGET, route_entries.GATEWAY) == (check_context.TARGET, request_target.GATEWAY)
    assert gateway_status.CONTROLLER == compiling.CONTROLLER
    found = authorizations(policy("[{kind: Gateway, name: edge}]"))
    for place, backend in (("8002/old", Ref("XBackend", "default", "old")), ("8002/service", None)):
        enforced = found[place]
        assert isinstance(enforced, Enforced)
        context = dict(enforced.context)
        target = parse_target(context.get(check_context.TARGET), context.get(request_target.GATEWAY))
        assert target == RequestTarget(backend=backend, gateway=Ref("Gateway", "default", "edge"), section="two")


GLOBAL = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec:
  globalExtAuth: {extensionRef: {name: auth, namespace: default}}
"""
SECURE = GATEWAY.replace(
    "{name: two, port: 8002, protocol: HTTP}",
    "{name: two, port: 8002, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}}",
)


@pytest.mark.requirement("GL-6")
def test_global_authorization_is_not_for_gateways_over_http_or_https_and_says_so() -> None:
    plain = (
        PROXY.replace("    tls: {secretName: tls}\n", "").split("    authorization")[0]
        + "  routes:\n  - services: [{name: echo, port: 80}]\n"
    )
    world = World([OPEN, ECHO, AUTH, EXTENSION, secrets(), GLOBAL, SECURE, plain])
    assert [type(route.authorization) for host in plain_hosts(world.graph) for route in host.routes] == [Enforced]
    assert {type(port).__name__ for port in world.graph.gateways} == {"PlainPort", "SecurePort"}
    assert set(authorizations_on(world.graph.gateways)) == {Unprotected()}
    assert world.warnings("ContourConfiguration") == [
        ("IgnoredField", "Global authorization applies only to HTTPProxies. Use AccessPolicies for Backends.")
    ]
