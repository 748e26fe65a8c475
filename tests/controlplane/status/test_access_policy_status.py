"""``status.ancestors`` of policies, and the conditions of what they protect."""

import json
from functools import partial
from typing import Any

import pytest
from tests.support.policies.compiled import compiled, load
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import EDGE, SHOP

from authplane.controlplane.status.access_policy_status import (
    Ancestor,
    Condition,
    ancestor_ref,
    build_ancestors,
    build_target_conditions,
)
from authplane.controlplane.status.enforced_condition import enforced_condition
from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import compile_policies
from authplane.policy.placement.target_routes import TargetRoutes

P = Ref("AccessPolicy", "default", "p")
T0, T1 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
BACKEND_REF = {"group": "agentic.networking.x-k8s.io", "kind": "Backend", "namespace": "default", "name": "shop"}
PROGRAMMED = Condition(
    type="Programmed", status="True", reason="Programmed", message="Every connected proxy accepted this resource."
)


def ancestors(*documents: str, **more: Any) -> tuple[Ancestor, ...]:
    made = compiled(*documents)
    enforced = partial(
        enforced_condition, made.standings[P], policies=made.policies, passages=TargetRoutes(made.policies, {})
    )
    return build_ancestors(made.standings[P], enforced=enforced, **more)


def short(found: tuple[Ancestor, ...]) -> list[list[tuple[str, str, str]]]:
    return [[(each.type, each.status, each.reason) for each in ancestor.conditions] for ancestor in found]


FINE = [("Accepted", "True", "Accepted"), ("ResolvedRefs", "True", "ResolvedRefs")]
ENFORCED = [("Programmed", "True", "Programmed"), ("Enforced", "True", "Native")]
CALLED_OUT = [ENFORCED[0], ("Enforced", "True", "CallOut")]
NOWHERE = [
    ("ResolvedRefs", "True", "ResolvedRefs"),
    ("Programmed", "False", "NotAccepted"),
    ("Enforced", "False", "TargetNotFound"),
]
DENYING = [*NOWHERE[:2], ("Enforced", "True", "Denies")]
STATES = {
    "in force": ((BACKEND, policy(rule())), [*FINE, *ENFORCED]),
    "in shadow": (
        (BACKEND, policy(rule(), more="  mode: Shadow")),
        [*FINE, ENFORCED[0], ("Enforced", "False", "Shadow")],
    ),
    "an expression in shadow": (
        (BACKEND, policy(rule(authorization="[{type: CEL, cel: x}]"), more="  mode: Shadow")),
        [("Accepted", "False", "InvalidCEL"), *NOWHERE[:2], ("Enforced", "False", "Shadow")],
    ),
    "no target": (
        (policy(rule()),),
        [("Accepted", "False", "TargetNotFound"), ("ResolvedRefs", "False", "TargetNotFound"), *NOWHERE[1:]],
    ),
    "an expression": (
        (BACKEND, policy(rule(authorization="[{type: CEL, cel: x}]"))),
        [("Accepted", "False", "InvalidCEL"), *DENYING],
    ),
    "a source": ((BACKEND, policy(rule("{type: SPIFFE}"))), [("Accepted", "False", "InvalidSource"), *DENYING]),
    "an issuer": (
        (BACKEND, policy(rule(OIDC.replace("https", "http")))),
        [("Accepted", "False", "InvalidIssuer"), *DENYING],
    ),
    "a target of another kind": (
        (BACKEND, policy(rule(), targets="[{kind: Backend, name: shop}, {kind: Pod, name: x}]")),
        [("Accepted", "False", "UnsupportedTarget"), *DENYING],
    ),
    "nothing but a target of another kind": (
        (BACKEND, policy(rule(), targets="[{kind: Service, name: shop}]")),
        [("Accepted", "False", "UnsupportedTarget"), *NOWHERE],
    ),
    "a target of another group": (
        (BACKEND, policy(rule(), targets="[{group: apps, kind: Backend, name: shop}]")),
        [("Accepted", "False", "UnsupportedTarget"), *DENYING],
    ),
    "two kinds of targets": (
        (BACKEND, policy(rule(), targets="[{kind: Backend, name: shop}, {kind: Gateway, name: edge}]")),
        [("Accepted", "False", "Invalid"), *DENYING],
    ),
    "one too many": (
        (BACKEND, *(policy(rule(), name=f"a{index}") for index in range(5)), policy(rule())),
        [("Accepted", "False", "LimitPerTargetExceeded"), *DENYING],
    ),
    "a service that is not there": (
        (BACKEND, policy(anybody(f"[{asks()}]"))),
        [("Accepted", "True", "Accepted"), ("ResolvedRefs", "False", "BackendNotFound"), *CALLED_OUT],
    ),
    "a service that must not be referred to": (
        (BACKEND, policy(anybody(f"[{asks()}]".replace("name: authz", "name: authz, namespace: x")))),
        [("Accepted", "True", "Accepted"), ("ResolvedRefs", "False", "RefNotPermitted"), *CALLED_OUT],
    ),
    "an issuer that cannot be reached": (
        (BACKEND, policy(rule(OIDC))),
        [("Accepted", "True", "Accepted"), ("ResolvedRefs", "False", "IssuerUnreachable"), *ENFORCED],
    ),
}


@pytest.mark.requirement("R3", "R77")
@pytest.mark.parametrize(
    ("target", "group"),
    [
        ("{kind: Backend, name: x}", "agentic.networking.x-k8s.io"),
        ("{kind: Gateway, name: x}", "gateway.networking.k8s.io"),
        ("{group: agentic.prototype.x-k8s.io, kind: XBackend, name: x}", "agentic.networking.x-k8s.io"),
        ("{group: apps, kind: Backend, name: x}", "apps"),
        ("{kind: Service, name: x}", ""),
    ],
)
def test_an_entry_names_the_target_as_the_policy_does(target: str, group: str) -> None:
    [found] = ancestors(policy(rule(), targets=f"[{target}]"))
    assert ancestor_ref(found.aim) == {"group": group, "kind": found.aim.ref.kind, "namespace": "default", "name": "x"}


@pytest.mark.requirement("R3", "R75", "R76")
@pytest.mark.parametrize(("documents", "want"), STATES.values(), ids=STATES.keys())
def test_conditions(documents: tuple[str, ...], want: list[tuple[str, str, str]]) -> None:
    found = ancestors(*documents, programmed=PROGRAMMED, without_keys={"https://issuer.example": "no answer"})
    assert short(found)[0] == want


@pytest.mark.requirement("R77")
def test_the_ancestor_is_the_target_itself() -> None:
    [found] = ancestors(BACKEND, policy(rule()), programmed=PROGRAMMED)
    assert ancestor_ref(found.aim) == BACKEND_REF
    assert found.conditions[0].message == "The policy is enforced."
    assert found.conditions[-1].message == "rule rule-0, entries 0:InlineTools, base_protocol: decided in Envoy"


@pytest.mark.requirement("R77")
def test_the_ancestor_of_a_listener_names_it() -> None:
    targets = "[{kind: Gateway, name: edge, sectionName: web}, {kind: Gateway, name: edge, sectionName: admin}]"
    found = ancestors(GATEWAY, policy(rule(), targets=targets))
    assert [ancestor_ref(each.aim) for each in found] == [
        {
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "namespace": "default",
            "name": "edge",
            "sectionName": section,
        }
        for section in ("web", "admin")
    ]


def test_warnings_stand_in_the_message() -> None:
    [found] = ancestors(BACKEND, policy(rule(OIDC.replace("https://", ""))))
    assert "has no scheme and is read as 'https://issuer.example'" in found.conditions[0].message


@pytest.mark.requirement("T07")
def test_the_target_of_a_policy_whose_list_is_full_says_so() -> None:
    stored = [{"ancestorRef": {"name": f"n{index}"}, "controllerName": "x.example/c"} for index in range(16)]
    loaded = load(BACKEND, f"{policy(rule())}\nstatus: {json.dumps({'ancestors': stored})}")
    made = compile_policies(loaded.resources)
    [protected, _] = build_target_conditions(made, loaded.resources, SHOP)
    assert (protected.type, protected.status, protected.reason) == ("Protected", "True", "PolicyStatusFull")


# --- Backends


SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
"""
TARGETS = {
    "protected": ((BACKEND, SERVICE, policy(rule())), ("True", "Protected"), ("True", "ResolvedRefs")),
    "open": ((BACKEND, SERVICE, OPEN), ("False", "NoPolicy"), ("True", "ResolvedRefs")),
    "shut": (
        (BACKEND, SERVICE),
        ("False", "DeniedByDefault"),
        ("True", "ResolvedRefs"),
    ),
    "a policy with a mistake": (
        (BACKEND, SERVICE, policy(rule("{type: SPIFFE}"))),
        ("True", "PolicyNotAccepted"),
        ("True", "ResolvedRefs"),
    ),
    "a policy in shadow": (
        (BACKEND, SERVICE, OPEN, policy(rule(), more="  mode: Shadow")),
        ("False", "Shadow"),
        ("True", "ResolvedRefs"),
    ),
    "a policy in shadow with a mistake": (
        (BACKEND, SERVICE, OPEN, policy(rule("{type: SPIFFE}"), more="  mode: Shadow")),
        ("False", "Shadow"),
        ("True", "ResolvedRefs"),
    ),
    "a policy in shadow, and shut": (
        (BACKEND, SERVICE, policy(rule(), more="  mode: Shadow")),
        ("False", "DeniedByDefault"),
        ("True", "ResolvedRefs"),
    ),
    "a policy in shadow beside one in force": (
        (BACKEND, SERVICE, policy(rule()), policy(rule(), name="s", more="  mode: Shadow")),
        ("True", "Protected"),
        ("True", "ResolvedRefs"),
    ),
    "no service": ((BACKEND,), ("False", "DeniedByDefault"), ("False", "BackendNotFound")),
    "no port": ((BACKEND, SERVICE.replace("80", "81")), ("False", "DeniedByDefault"), ("False", "BackendNotFound")),
    "outside": (
        (BACKEND.replace("serviceName: shop", "hostname: a.example"),),
        ("False", "DeniedByDefault"),
        ("True", "ResolvedRefs"),
    ),
}


@pytest.mark.requirement("R30")
@pytest.mark.parametrize(("documents", "protected", "resolved"), TARGETS.values(), ids=TARGETS.keys())
def test_a_backend_says_whether_it_is_protected_and_whether_it_is_there(
    documents: tuple[str, ...], protected: tuple[str, str], resolved: tuple[str, str]
) -> None:
    loaded = load(*documents, SERVICES)
    found = build_target_conditions(compile_policies(loaded.resources), loaded.resources, SHOP)
    assert [(each.type, each.status, each.reason) for each in found] == [
        ("Protected", *protected),
        ("ResolvedRefs", *resolved),
    ]


def test_a_gateway_says_whether_it_is_protected() -> None:
    loaded = load(GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge}]"))
    found = build_target_conditions(compile_policies(loaded.resources), loaded.resources, EDGE)
    assert [(each.type, each.reason) for each in found] == [("Protected", "Protected")]
    assert build_target_conditions(compile_policies(loaded.resources), loaded.resources, SHOP) == ()
