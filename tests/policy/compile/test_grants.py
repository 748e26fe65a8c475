"""A policy asks a Service of another namespace only where a ReferenceGrant of that namespace lets it."""

import pytest
from tests.support.policies.compiled import compiled, errors
from tests.support.policies.documents import BACKEND, anybody, policy
from tests.support.policies.external_services import SERVICES

GRANT = """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: g, namespace: infra}
spec:
  from: [{group: agentic.networking.x-k8s.io, kind: AccessPolicy, namespace: default}]
  to: [{group: "", kind: Service, name: authz}]
"""
ELSEWHERE = SERVICES.replace("{name: authz}", "{name: authz, namespace: infra}")
AWAY = policy(
    anybody(
        "[{type: ExternalAuth, externalAuth: "
        "{protocol: GRPC, backendRef: {name: authz, namespace: infra, port: 9000}}}]"
    )
)
REFUSED = (
    'spec.rules[0].authorization[0].externalAuth.backendRef: No ReferenceGrant allows AccessPolicy "default/p" '
    "to refer to Service \"infra/authz\". Add one in namespace 'infra'. [RefNotPermitted]"
)
OTHERS = {
    "for another namespace": ("namespace: default}]", "namespace: other}]"),
    "for another group": ("group: agentic.networking.x-k8s.io", "group: gateway.networking.k8s.io"),
    "for another kind": ("kind: AccessPolicy", "kind: HTTPRoute"),
    "of another namespace": ("namespace: infra}", "namespace: default}"),
    "to another kind": ("kind: Service", "kind: Secret"),
    "to another group": ('group: ""', "group: apps"),
    "to another name": ("name: authz}", "name: authz2}"),
}


@pytest.mark.requirement("R68", "T01")
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_a_grant_allows_only_the_named_references(change: tuple[str, str]) -> None:
    assert change[0] in GRANT
    assert errors(compiled(BACKEND, ELSEWHERE, GRANT.replace(*change), AWAY)) == [REFUSED]


@pytest.mark.requirement("R68")
@pytest.mark.parametrize("name", [", name: authz", ""])
def test_a_grant_names_a_service_or_means_all(name: str) -> None:
    assert errors(compiled(BACKEND, ELSEWHERE, GRANT.replace(", name: authz", name), AWAY)) == []
