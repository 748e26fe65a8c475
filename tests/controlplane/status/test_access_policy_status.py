"""``status.ancestors`` of policies, and the conditions of what they protect."""

import json
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.policies.compiled import compiled, load
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import EDGE, SHOP

from authplane.controlplane.status.access_policy_status import (
    Ancestor,
    Condition,
    Merged,
    ancestor_ref,
    build_ancestors,
    build_target_conditions,
    merge_ancestors,
)
from authplane.controlplane.status.enforced_condition import enforced_condition
from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import CONTROLLER, compile_policies
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.policy.rules.policy_targets import PolicyTarget

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


@pytest.mark.requirement("R77", "R70")
def test_the_ancestor_is_the_target_itself_and_an_entry_is_whole() -> None:
    merged = merge_ancestors([], ancestors(BACKEND, policy(rule()), programmed=PROGRAMMED), generation=3, now=T0)
    [entry] = merged.ancestors
    assert set(entry) == {"ancestorRef", "controllerName", "conditions"}
    assert (entry["ancestorRef"], entry["controllerName"]) == (BACKEND_REF, CONTROLLER)
    assert entry["conditions"][0] == {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "The policy is enforced.",
        "observedGeneration": 3,
        "lastTransitionTime": T0,
    }
    assert entry["conditions"][-1]["message"] == "rule rule-0, entries 0:InlineTools, base_protocol: decided in Envoy"
    assert merged.changed


@pytest.mark.requirement("R77")
def test_the_ancestor_of_a_listener_names_it() -> None:
    targets = "[{kind: Gateway, name: edge, sectionName: web}]"
    merged = merge_ancestors([], ancestors(GATEWAY, policy(rule(), targets=targets)), generation=1, now=T0)
    assert merged.ancestors[0]["ancestorRef"] == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": "default",
        "name": "edge",
        "sectionName": "web",
    }


@pytest.mark.requirement("R77")
def test_listeners_of_one_gateway_are_ancestors_of_their_own_and_keep_their_times() -> None:
    both = "[{kind: Gateway, name: edge, sectionName: web}, {kind: Gateway, name: edge, sectionName: admin}]"
    found = ancestors(GATEWAY, policy(rule(), targets=both))
    first = merge_ancestors([], found, generation=1, now=T0)
    again = merge_ancestors(first.ancestors, found, generation=1, now="2027-01-01T00:00:00Z")
    assert [each["ancestorRef"]["sectionName"] for each in again.ancestors] == ["web", "admin"]
    assert (again.ancestors, again.changed) == (first.ancestors, False)


def test_warnings_stand_in_the_message() -> None:
    [found] = ancestors(BACKEND, policy(rule(OIDC.replace("https://", ""))))
    assert "has no scheme and is read as 'https://issuer.example'" in found.conditions[0].message


# --- Among the entries of others


def entry(name: str, controller: str = "x.example/controller", **more: Any) -> dict[str, Any]:
    return {"ancestorRef": {"name": name}, "controllerName": controller, "conditions": [], **more}


def ours(*names: str, status: str = "True") -> tuple[Ancestor, ...]:
    condition = Condition(type="Accepted", status=status, reason="Accepted", message="")
    return tuple(Ancestor(aim=PolicyTarget(Ref("Backend", "default", name)), conditions=(condition,)) for name in names)


@pytest.mark.requirement("R71", "R72")
def test_entries_of_others_stay_and_our_own_are_added_updated_and_removed() -> None:
    stored = [entry("a", odd={"b": [1]}), *merge_ancestors([], ours("a", "b"), generation=1, now=T0).ancestors]
    before = deepcopy(stored)
    merged = merge_ancestors(stored, ours("b", "c"), generation=2, now=T1)
    assert stored == before
    assert merged.ancestors[0] is stored[0]
    assert [each["ancestorRef"]["name"] for each in merged.ancestors] == ["a", "b", "c"]
    assert [each["conditions"][0]["lastTransitionTime"] for each in merged.ancestors[1:]] == [T0, T1]
    assert [each["conditions"][0]["observedGeneration"] for each in merged.ancestors[1:]] == [2, 2]
    again = merge_ancestors(merged.ancestors, ours("b", "c"), generation=2, now="later")
    assert again == Merged(ancestors=merged.ancestors, changed=False)


@pytest.mark.requirement("R73")
def test_a_policy_that_concerns_nothing_has_no_entries() -> None:
    merged = merge_ancestors(
        merge_ancestors([], ours("a"), generation=1, now=T0).ancestors,
        ancestors(BACKEND, policy(rule(), targets="[]")),
        generation=2,
        now=T1,
    )
    assert merged == Merged(ancestors=[], changed=True)


@pytest.mark.requirement("R74", "T07")
def test_a_full_list_gets_no_entry_more_and_the_target_says_so() -> None:
    stored = [entry(f"n{index}") for index in range(16)]
    merged = merge_ancestors(stored, ours("shop"), generation=1, now=T0)
    assert merged == Merged(ancestors=stored, changed=False, left_out=(PolicyTarget(SHOP),))
    loaded = load(BACKEND, f"{policy(rule())}\nstatus: {json.dumps({'ancestors': stored})}")
    made = compile_policies(loaded.resources)
    [protected, _] = build_target_conditions(made, loaded.resources, SHOP)
    assert (protected.type, protected.status, protected.reason) == ("Protected", "True", "PolicyStatusFull")
    room = merge_ancestors(stored[:15], ours("shop", "cafe"), generation=1, now=T0)
    assert (len(room.ancestors), room.left_out) == (16, (PolicyTarget(Ref("Backend", "default", "cafe")),))


@pytest.mark.requirement("R75")
def test_a_newer_condition_is_not_put_back_and_its_time_changes_only_with_its_status() -> None:
    stored = merge_ancestors([], ours("a"), generation=5, now=T0).ancestors
    older = merge_ancestors(stored, ours("a", status="False"), generation=4, now=T1)
    assert older == Merged(ancestors=stored, changed=False)
    flipped = merge_ancestors(stored, ours("a", status="False"), generation=6, now=T1)
    assert flipped.ancestors[0]["conditions"][0]["lastTransitionTime"] == T1
    same = merge_ancestors(stored, ours("a"), generation=6, now=T1)
    assert same.ancestors[0]["conditions"][0]["lastTransitionTime"] == T0


def test_an_entry_with_defaults_left_out_is_known_as_ours() -> None:
    stored = [entry("edge", CONTROLLER, ancestorRef={"name": "edge", "namespace": "default"})]
    gateway = Ancestor(aim=PolicyTarget(EDGE), conditions=ours("x")[0].conditions)
    merged = merge_ancestors(stored, (gateway,), generation=1, now=T0)
    assert len(merged.ancestors) == 1
    assert merged.ancestors[0]["ancestorRef"] == {"name": "edge", "namespace": "default"}


entries = st.builds(entry, st.sampled_from("abcdefgh"), st.sampled_from(["x.example/a", "y.example/b", CONTROLLER]))


@pytest.mark.requirement("R70", "R71")
@given(stored=st.lists(entries, max_size=16), names=st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_there_are_never_more_than_sixteen_and_others_keep_theirs_in_order(
    stored: list[dict[str, Any]], names: list[str]
) -> None:
    merged = merge_ancestors(stored, ours(*names), generation=1, now=T0)
    assert len(merged.ancestors) <= 16
    foreign = [each for each in stored if each["controllerName"] != CONTROLLER]
    assert [each for each in merged.ancestors if each["controllerName"] != CONTROLLER] == foreign
    mine = [each["ancestorRef"]["name"] for each in merged.ancestors if each["controllerName"] == CONTROLLER]
    assert sorted(mine + [aim.ref.name for aim in merged.left_out]) == sorted(names)
    assert all(1 <= len(each["conditions"]) <= 8 for each in merged.ancestors if each["controllerName"] == CONTROLLER)


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
