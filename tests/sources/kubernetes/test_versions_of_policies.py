"""XAccessPolicies of two versions in one cluster: each is read as its author wrote it."""

from typing import Any

import pytest
from tests.support.kubernetes.local_cluster import Cluster

from authplane.sources.kubernetes.api_kinds import api_kinds
from authplane.sources.kubernetes.object_documents import document_of

FIRST, LATER = "agentic.networking.x-k8s.io/v0alpha0", "agentic.networking.x-k8s.io/v1alpha1"


def policy(version: str, *writers: str, **metadata: str) -> dict[str, Any]:
    fields = [{"apiVersion": each, "fieldsV1": {"f:spec": {}}} for each in writers]
    status = {"apiVersion": LATER, "fieldsV1": {"f:status": {}}}
    managed = {"managedFields": [*fields, status]} if writers else {}
    target = {"group": "agentic.networking.x-k8s.io", "kind": "XBackend", "name": "a"}
    source = {"type": "SPIFFE", "spiffe": "spiffe://cluster.local/ns/a/sa/a"}
    action = {"action": "Allow"} if version == LATER else {}
    return {
        "apiVersion": version,
        "kind": "XAccessPolicy",
        "metadata": {"name": "a", **metadata, **managed},
        "spec": {"targetRefs": [target], "rules": [{"name": "all", "source": source}], **action},
    }


@pytest.mark.parametrize(
    ("writers", "version"), [((FIRST,), FIRST), ((LATER,), LATER), ((FIRST, LATER), LATER), ((), LATER)]
)
def test_the_writers_of_the_spec_say_which_version_is_meant(writers: tuple[str, ...], version: str) -> None:
    assert document_of(policy(LATER, *writers))["apiVersion"] == version


def test_the_later_version_is_the_one_that_is_read() -> None:
    (kind,) = (each for each in api_kinds() if each.resource == "xaccesspolicies.agentic.networking.x-k8s.io")
    assert kind.versions == ("v1alpha1", "v0alpha0")


@pytest.mark.real
@pytest.mark.requirement("KC-8")
def test_an_api_server_shows_both_in_the_later_version_and_they_are_told_apart(
    upstream_crds: Cluster, namespace: str
) -> None:
    for version, name in ((FIRST, "first"), (LATER, "later")):
        upstream_crds.objects.create(policy(version, name=name, namespace=namespace))
    shown = upstream_crds.objects.listed(LATER, "XAccessPolicy", namespace)["items"]
    # Items of a list of custom resources have their own version and kind.
    assert [(each["metadata"]["name"], each["apiVersion"]) for each in shown] == [("first", LATER), ("later", LATER)]
    assert [document_of(each)["apiVersion"] for each in shown] == [FIRST, LATER]
