"""The schemas of a real cluster: which of our fields the definitions of other projects drop."""

import pytest
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.local_cluster import Cluster

from authplane.sources.kubernetes.installed_kinds import InstalledKind
from authplane.sources.runtime.read_schemas import read_installed_kinds

pytestmark = pytest.mark.real


def account_without_roles(cluster: Cluster, namespace: str) -> str:
    metadata = {"name": "reader", "namespace": namespace}
    cluster.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return cluster.service_account_token(namespace, "reader")


def by_resource(found: tuple[InstalledKind, ...]) -> dict[str, InstalledKind]:
    return {each.resource: each for each in found}


@pytest.mark.requirement("KC-6")
async def test_any_account_can_name_the_fields_that_contour_drops(upstream_crds: Cluster, namespace: str) -> None:
    async with api_client(upstream_crds, account_without_roles(upstream_crds, namespace)) as client:
        found = by_resource(await read_installed_kinds(client))
    assert {"spec.services[].validation", "spec.services[].protocol"} <= set(
        found["extensionservices.projectcontour.io"].pruned
    )
    assert "spec.virtualhost.authorization.extensionRef.kind" in found["httpproxies.projectcontour.io"].pruned
    assert "spec.listeners[].tls.frontendValidation" in found["gateways.gateway.networking.k8s.io"].pruned
    assert found["referencegrants.gateway.networking.k8s.io"].pruned == ()
    assert found["accesspolicies.agentic.networking.x-k8s.io"].version == ""


async def test_what_contour_drops_is_really_gone(upstream_crds: Cluster, namespace: str) -> None:
    validation = {"caSecret": "ca", "subjectName": "auth.example"}
    stored = upstream_crds.objects.create(
        {
            "apiVersion": "projectcontour.io/v1alpha1",
            "kind": "ExtensionService",
            "metadata": {"name": "auth", "namespace": namespace},
            "spec": {"services": [{"name": "auth", "port": 9443, "validation": validation}], "validation": validation},
        }
    )
    assert "validation" not in stored["spec"]["services"][0]
    assert stored["spec"]["validation"] == validation
