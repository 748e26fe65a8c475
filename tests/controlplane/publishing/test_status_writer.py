"""Statuses at a real API server: ours are written once, those of others stay, and transitions are Events."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.controlplane.publishing.status_lab import Lab, running, spec_of
from tests.support.eventually import eventually
from tests.support.kubernetes.local_cluster import Cluster
from tests.support.statuses import condition

from authplane.controlplane.status.resource_status import (
    AncestorStatus,
    ListenerStatus,
    ParentStatus,
    Status,
    SubCondition,
)
from authplane.core.names import Ref

pytestmark = pytest.mark.real

THEIRS = {
    "type": "Theirs",
    "status": "True",
    "reason": "Because",
    "message": "of them",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def proxy(namespace: str, *kinds: str, status: str = "True", generation: int = 1) -> Status:
    return Status(
        ref=Ref("HTTPProxy", namespace, "web"),
        api_version="projectcontour.io/v1",
        generation=generation,
        conditions=tuple(condition(each, status) for each in kinds or ("Valid",)),
    )


def policy(namespace: str, *names: str) -> Status:
    found = (condition("Accepted"),)
    refs = [(("kind", "XBackend"), ("namespace", namespace), ("name", name)) for name in names]
    return Status(
        ref=Ref("XAccessPolicy", namespace, "p"),
        api_version="agentic.networking.x-k8s.io/v1alpha1",
        generation=1,
        conditions=(),
        ancestors=tuple(AncestorStatus(ref=each, conditions=found) for each in refs),
    )


def by_type(status: Any) -> dict[str, Any]:
    return {each["type"]: each for each in status["conditions"]}


@pytest.mark.requirement("KU-10", "ES-32")
async def test_an_apply_leaves_conditions_and_fields_of_others_alone(upstream_crds: Cluster, namespace: str) -> None:
    async with running(Lab(upstream_crds, namespace, "a")) as lab:
        wanted = proxy(namespace, "Valid", "UpToDate")
        lab.create(wanted.ref)
        document = spec_of(wanted.ref) | {
            "status": {"conditions": [THEIRS], "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        }
        path = upstream_crds.objects.path(document)
        query = {"fieldManager": "somebody"}
        del document["spec"]
        answer = upstream_crds.objects.request(
            "PATCH", f"{path}/status", document, content_type="application/apply-patch+yaml", query=query
        )
        assert answer.status_code == 200, answer.text
        lab.see(wanted.ref)
        await lab.publish(wanted)
        first = lab.status(wanted.ref)
        assert by_type(first).keys() == {"Theirs", "Valid", "UpToDate"}
        await lab.publish(proxy(namespace, "Valid"))
        second = lab.status(wanted.ref)
        assert by_type(second) == {"Theirs": THEIRS, "Valid": by_type(first)["Valid"]}
        assert (second["loadBalancer"], second["currentStatus"]) == ({"ingress": [{"ip": "192.0.2.1"}]}, "valid")
        assert lab.writer.written() == 2


@pytest.mark.requirement("KU-10", "KU-11")
async def test_after_a_conflict_the_object_is_read_again_and_entries_of_others_stay(
    upstream_crds: Cluster, namespace: str
) -> None:
    async with running(Lab(upstream_crds, namespace, "a")) as lab:
        wanted = policy(namespace, "b")
        lab.create(wanted.ref)
        other = {"ancestorRef": {"name": "x"}, "controllerName": "x.example/c", "conditions": [THEIRS]}
        upstream_crds.objects.patch(spec_of(wanted.ref), {"status": {"ancestors": [other]}}, subresource="status")
        kept = lab.status(wanted.ref)["ancestors"][0]
        await lab.publish(wanted)
        theirs, ours = lab.status(wanted.ref)["ancestors"]
        assert json.dumps(theirs) == json.dumps(kept)
        assert (ours["controllerName"], ours["ancestorRef"]["name"]) == ("authplane.dev/controller", "b")
        lab.see(wanted.ref)
        await lab.publish(policy(namespace))
        assert lab.status(wanted.ref)["ancestors"] == [kept]


@pytest.mark.requirement("KU-12", "KU-13")
async def test_nothing_is_written_when_nothing_changed_even_after_a_restart(
    upstream_crds: Cluster, namespace: str
) -> None:
    found = (condition("Accepted"), condition("Programmed"))
    gateway = Status(
        ref=Ref("Gateway", namespace, "edge"),
        api_version="gateway.networking.k8s.io/v1",
        generation=1,
        conditions=found,
        listeners=(
            ListenerStatus(name="web", attached_routes=2, conditions=(*found, condition("Conflicted", "False"))),
        ),
    )
    route = Status(
        ref=Ref("HTTPRoute", namespace, "r"),
        api_version="gateway.networking.k8s.io/v1",
        generation=1,
        conditions=(condition("UpToDate", "False"),),
        parents=(ParentStatus(ref=(("name", "edge"),), conditions=found),),
    )
    errors = (SubCondition(type="SpecError", reason="FieldInvalid", message="No. Remove it."),) * 2
    invalid = replace(condition("Valid", "False"), errors=errors, warnings=errors)
    statuses = (
        gateway,
        route,
        policy(namespace, "b", "c"),
        replace(proxy(namespace), conditions=(invalid,)),
    )
    async with running(Lab(upstream_crds, namespace, "a")) as lab:
        for each in statuses:
            lab.create(each.ref)
        await lab.publish(*statuses)
        assert lab.writer.written() == len(statuses)
        before = {each.ref: lab.see(each.ref) for each in statuses}
        await lab.publish(*statuses)
    async with running(Lab(upstream_crds, namespace, "b")) as lab:
        for each in statuses:
            lab.see(each.ref)
        await lab.publish(*statuses)
        assert lab.writer.written() == 0
        assert {each.ref: lab.see(each.ref) for each in statuses} == before


@pytest.mark.requirement("KU-15")
async def test_a_transition_is_an_event_and_a_repeated_one_is_counted(upstream_crds: Cluster, namespace: str) -> None:
    async with running(Lab(upstream_crds, namespace, "pod-a")) as lab:
        lab.create(Ref("HTTPProxy", namespace, "web"))
        for status in ("True", "False", "True", "False", "False"):
            await lab.publish(proxy(namespace, status=status))

        async def counted() -> bool:
            counts = {each["type"]: each.get("series", {}).get("count", 1) for each in lab.seen_events()}
            return counts == {"Warning": 2, "Normal": 1}

        await eventually(counted)
        warning = next(each for each in lab.seen_events() if each["type"] == "Warning")
        assert (warning["regarding"]["name"], warning["reason"]) == ("web", "Valid")
        assert warning["note"] == "Valid is False. Valid is False."
        described = upstream_crds.kubectl("describe", "httpproxy", "web", "--namespace", namespace).stdout
        assert "Warning  Valid" in described


@pytest.mark.requirement("KU-10")
async def test_from_an_object_that_is_not_ours_any_more_our_status_is_withdrawn(
    upstream_crds: Cluster, namespace: str
) -> None:
    async with running(Lab(upstream_crds, namespace, "a")) as lab:
        wanted = (proxy(namespace), policy(namespace, "b"))
        for each in wanted:
            lab.create(each.ref)
        await lab.publish(*wanted)
        for each in wanted:
            lab.see(each.ref)
        await lab.publish()
        # The schema of the kind fills in a status that says nothing.
        untouched = {"currentStatus": "NotReconciled", "description": "Waiting for controller"}
        assert [lab.status(each.ref) for each in wanted] == [untouched, {"ancestors": []}]
        for each in wanted:
            lab.see(each.ref)
        await lab.publish()
        assert lab.writer.written() == 4


async def test_an_object_that_is_gone_is_forgotten(upstream_crds: Cluster, namespace: str) -> None:
    async with running(Lab(upstream_crds, namespace, "a")) as lab:
        wanted = proxy(namespace)
        lab.create(wanted.ref)
        upstream_crds.objects.delete(spec_of(wanted.ref))
        await lab.publish(wanted)
        assert lab.writer.written() == 0


@pytest.mark.requirement("KU-11")
async def test_without_the_permission_the_log_says_so_once_and_the_write_is_repeated(
    upstream_crds: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = upstream_crds.objects
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cp", "namespace": namespace}}
    objects.create(account)
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    statuses = {"apiGroups": ["projectcontour.io"], "resources": ["httpproxies/status"], "verbs": ["patch"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "cp", "namespace": namespace},
    }
    objects.create(role | {"rules": [leases]})
    objects.create(
        role
        | {
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cp"},
            "subjects": [{"kind": "ServiceAccount", "name": "cp", "namespace": namespace}],
        }
    )
    token = upstream_crds.service_account_token(namespace, "cp")
    async with running(Lab(upstream_crds, namespace, "a", token)) as lab:
        wanted = proxy(namespace)
        lab.create(wanted.ref)
        await lab.publish(wanted)
        assert lab.writer.written() == 0
        objects.apply(role | {"rules": [leases, statuses]})

        async def written() -> bool:
            return lab.writer.written() == 1

        await eventually(written)
    said = capsys.readouterr()
    assert (said.out + said.err).count("cannot write statuses") == 1
