"""The cluster of the tests does what tests rely on."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.kubernetes.api_objects import RefusedError
from tests.support.kubernetes.local_cluster import Cluster, running_cluster

pytestmark = pytest.mark.real


def config_map(name: str, namespace: str, **data: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def service_account(name: str, namespace: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def test_objects_are_created_changed_read_and_deleted(cluster: Cluster, namespace: str) -> None:
    objects, document = cluster.objects, config_map("a", namespace, key="one")
    first = objects.create(document)
    second = objects.patch(document, {"data": {"key": "two"}})
    assert objects.get("v1", "ConfigMap", "a", namespace) == second
    assert second["metadata"]["resourceVersion"] > first["metadata"]["resourceVersion"]
    with pytest.raises(RefusedError, match="409"):
        objects.replace(first)
    applied = objects.apply(config_map("a", namespace, key="three"), manager="other")
    assert applied["data"] == {"key": "three"}
    assert [each["metadata"]["name"] for each in objects.listed("v1", "ConfigMap", namespace)["items"]] == ["a"]
    objects.delete(document)
    assert not objects.exists(document)


def test_a_namespace_is_cleared(cluster: Cluster, namespace: str) -> None:
    cluster.objects.create(config_map("a", namespace))
    cluster.objects.create(service_account("a", namespace))
    cluster.objects.clear(namespace)
    assert cluster.objects.listed("v1", "ConfigMap", namespace)["items"] == []
    assert cluster.objects.listed("v1", "ServiceAccount", namespace)["items"] == []


def test_a_service_account_may_do_what_its_role_grants(cluster: Cluster, namespace: str) -> None:
    cluster.objects.create_all(f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader, namespace: {namespace}}}
rules: [{{apiGroups: [""], resources: [configmaps], verbs: [list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]
""")
    reader = cluster.as_user(cluster.service_account_token(namespace, "reader"))
    assert reader.listed("v1", "ConfigMap", namespace)["items"] == []
    with pytest.raises(RefusedError, match="403"):
        reader.listed("v1", "Secret", namespace)
    with pytest.raises(RefusedError, match="403"):
        reader.create(config_map("a", namespace))
    reader.close()


def test_tokens_of_service_accounts_are_reviewed(cluster: Cluster, namespace: str) -> None:
    cluster.objects.create(service_account("caller", namespace))
    token = cluster.service_account_token(namespace, "caller", "tools.example")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    right = cluster.objects.create(review | {"spec": {"token": token, "audiences": ["tools.example"]}})
    assert right["status"]["user"]["username"] == f"system:serviceaccount:{namespace}:caller"
    assert right["status"]["audiences"] == ["tools.example"]
    wrong = cluster.objects.create(review | {"spec": {"token": token, "audiences": ["other.example"]}})
    assert not wrong["status"].get("authenticated", False)


def test_upstream_crds_are_served(upstream_crds: Cluster, namespace: str) -> None:
    [made] = upstream_crds.objects.create_all(f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: web, namespace: {namespace}}}
spec: {{virtualhost: {{fqdn: web.example}}}}
""")
    assert made["metadata"]["generation"] == 1
    assert upstream_crds.objects.serves("gateway.networking.k8s.io/v1", "HTTPRoute")
    assert upstream_crds.objects.serves("agentic.networking.x-k8s.io/v0alpha0", "XAccessPolicy")


def test_kubectl_speaks_to_the_cluster(cluster: Cluster, namespace: str) -> None:
    cluster.objects.create(config_map("a", namespace))
    done = cluster.kubectl("get", "configmaps", "-n", namespace, "-o", "name")
    assert (done.stdout, done.stderr) == ("configmap/a\n", "")


@pytest.mark.slow
async def test_controllers_delete_what_belongs_to_nothing(controllers: Cluster, namespace: str) -> None:
    objects = controllers.objects
    owner = objects.create(config_map("owner", namespace))
    owned = config_map("owned", namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"] = {"name": "owned", "namespace": namespace, "ownerReferences": [reference]}
    objects.create(owned)
    objects.delete(owner)

    async def is_gone() -> bool:
        return not objects.exists(owned)

    await eventually(is_gone)


@pytest.mark.slow
def test_an_old_version_is_gone_after_a_compaction(cluster_programs: Mapping[str, Path], tmp_path: Path) -> None:
    with running_cluster(tmp_path, cluster_programs) as cluster:
        objects = cluster.objects
        old = objects.create(config_map("a", "default"))["metadata"]["resourceVersion"]
        objects.create(config_map("b", "default"))
        page = objects.request("GET", "/api/v1/namespaces/default/configmaps", query={"limit": "1"}).json()
        objects.patch(config_map("a", "default"), {"data": {"key": "new"}})
        cluster.compact()
        cluster.restart_api_server()
        rest = {"limit": "1", "continue": page["metadata"]["continue"]}
        assert objects.request("GET", "/api/v1/namespaces/default/configmaps", query=rest).status_code == 410
        watch = {"watch": "1", "resourceVersion": old, "timeoutSeconds": "1"}
        answer = objects.request("GET", "/api/v1/namespaces/default/configmaps", query=watch)
        assert 410 in {answer.status_code, *_codes(answer.text)}
        assert objects.exists(config_map("b", "default"))


def _codes(events: str) -> list[int]:
    """Return the status codes of the errors among the events of a watch."""
    found = [json.loads(line) for line in events.splitlines()]
    return [each["object"]["code"] for each in found if each["type"] == "ERROR"]
