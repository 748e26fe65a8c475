"""`authplane doctor --kubernetes`, on a real API server."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from tests.support.certificates import authority, tls_secret
from tests.support.kubernetes.local_cluster import Cluster
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.controlplane.election.lease_record import lease_time
from authplane.devkit.identities.throwaway_certificates import Leaf, issue

pytestmark = pytest.mark.real


def doctor(cluster: Cluster, *options: str) -> Result:
    common = ["doctor", "--kubernetes", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    return CliRunner().invoke(build_app(), [*common, *options])


def rows(result: Result, probe: str) -> list[dict[str, Any]]:
    return [row for row in json.loads(result.stdout) if row["probe"] == probe]


def test_an_administrator_sees_the_server_and_the_fields_that_are_dropped(upstream_crds: Cluster) -> None:
    result = doctor(upstream_crds)
    (server,) = rows(result, "api-server")
    assert (server["subject"], server["outcome"]) == (upstream_crds.url, "ok")
    definitions = {row["subject"]: row for row in rows(result, "definition")}
    dropped = definitions["extensionservices.projectcontour.io"]
    assert dropped["outcome"] == "warning"
    assert "spec.services[].validation" in dropped["message"]
    assert definitions["referencegrants.gateway.networking.k8s.io"]["outcome"] == "ok"
    assert {row["outcome"] for row in rows(result, "permissions")} == {"ok"}
    assert len(rows(result, "permissions")) == 2


@pytest.mark.requirement("KC-7")
def test_a_permission_that_an_account_lacks_is_a_finding_that_names_it(upstream_crds: Cluster, namespace: str) -> None:
    upstream_crds.objects.create_all(f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: control, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: control, namespace: {namespace}}}
rules:
- {{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}}
- {{apiGroups: ["*"], resources: [events, leases], verbs: ["*"]}}
- {{apiGroups: [projectcontour.io], resources: [httpproxies/status], verbs: [patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: control, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: control}}
subjects: [{{kind: ServiceAccount, name: control, namespace: {namespace}}}]
""")
    place = ("--namespaces", namespace, "--lease-namespace", namespace)
    result = doctor(upstream_crds, "--control-account", f"{namespace}/control", *place)
    (found,) = rows(result, "permissions")
    assert (result.exit_code, found["outcome"]) == (1, "finding")
    assert found["subject"] == f"control plane as system:serviceaccount:{namespace}:control"
    assert f"patch gateways.gateway.networking.k8s.io/status in {namespace}" in found["message"]
    assert "httpproxies" not in found["message"]
    assert "leases" not in found["message"]


@pytest.mark.requirement("KC-7")
def test_the_replica_that_writes_statuses_is_named(upstream_crds: Cluster, namespace: str) -> None:
    (nobody,) = rows(doctor(upstream_crds, "--lease-namespace", namespace), "leader")
    assert nobody["outcome"] == "warning"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "authplane-status", "namespace": namespace},
        "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 10, "renewTime": lease_time(datetime.now(UTC))},
    }
    upstream_crds.objects.create(lease)
    (leader,) = rows(doctor(upstream_crds, "--lease-namespace", namespace), "leader")
    assert (leader["outcome"], leader["message"]) == ("ok", "pod-1 writes statuses.")


def test_an_api_server_that_does_not_answer_is_the_only_finding(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    server = f"https://127.0.0.1:{free_port()}"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        ),
        encoding="utf-8",
    )
    file.chmod(0o600)
    result = CliRunner().invoke(build_app(), ["doctor", "--kubernetes", "--kubeconfig", str(file), "-o", "json"])
    (row,) = json.loads(result.stdout)
    assert (result.exit_code, row["probe"], row["subject"], row["outcome"]) == (1, "api-server", server, "finding")
    assert row["remedy"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((".", "--kubernetes"), "You cannot combine DIR and --kubernetes."),
        (("--kubernetes", "--control-account", "control"), '"control" is not a ServiceAccount.'),
        (("--kubernetes", "--kubeconfig", "/nowhere"), "/nowhere does not exist."),
    ],
)
def test_wrong_options_are_usage_errors(options: tuple[str, ...], words: str, upstream_crds: Cluster) -> None:
    environment = {"KUBECONFIG": str(upstream_crds.kubeconfig)}
    result = CliRunner().invoke(build_app(), ["doctor", *options], env=environment)
    assert result.exit_code == 2
    assert words in result.stderr


PROXY: Final = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: web, namespace: {namespace}}}
spec:
  virtualhost: {{fqdn: web.example, tls: {{secretName: web}}}}
  routes: [{{services: [{{name: missing, port: 80}}]}}]
"""


def test_errors_and_certificates_of_the_objects_are_findings(upstream_crds: Cluster, namespace: str) -> None:
    past = datetime.now(UTC) - timedelta(days=10)
    ended = issue(authority(), Leaf(name="web", dns=("web.example",)), now=past, lifetime=timedelta(days=1))
    upstream_crds.objects.create_all(tls_secret("web", ended, namespace))
    upstream_crds.objects.create_all(PROXY.format(namespace=namespace))
    result = doctor(upstream_crds, "--namespaces", namespace)
    (documents,) = rows(result, "documents")
    assert (result.exit_code, documents["subject"], documents["outcome"]) == (1, "cluster", "finding")
    assert "validate --kubernetes" in documents["remedy"]
    (certificate,) = rows(result, "certificate")
    assert (certificate["subject"], certificate["outcome"]) == (f"Secret/{namespace}/web tls.crt", "finding")
    assert certificate["message"].startswith("The certificate expired on ")
