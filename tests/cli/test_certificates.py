"""`authplane certificates`, against a real API server and with the permissions of the manifests."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from tests.support.eventually import START_LIMIT
from tests.support.kubernetes.api_objects import documents
from tests.support.kubernetes.local_cluster import Cluster
from tests.support.pages import ROOT

from authplane.cli.main import build_app

AUTHPLANE: Final = (sys.executable, "-m", "authplane")
SECRETS: Final = ("authplane-ca", "authplane-control-tls", "authplane-policy-tls", "authplane-envoy-tls")
PARTS: Final = tuple(f"{name}={name}.internal" for name in SECRETS[1:])


@pytest.fixture
def account(cluster: Cluster, namespace: str) -> Path:
    """Return a kubeconfig of the ServiceAccount, with the Role that the manifests give it."""
    for each in documents((ROOT / "deploy" / "kubernetes" / "authplane.yaml").read_text(encoding="utf-8")):
        if each["metadata"]["name"] == "authplane-certificates" and each["kind"] in {
            "ServiceAccount",
            "Role",
            "RoleBinding",
        }:
            each["metadata"]["namespace"] = namespace
            for subject in each.get("subjects", ()):
                subject["namespace"] = namespace
            cluster.objects.create(each)
    return cluster.kubeconfig_for(cluster.service_account_token(namespace, "authplane-certificates"))


def run(kubeconfig: Path, namespace: str, *parts: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*AUTHPLANE, "certificates", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *parts],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_LIMIT,
    )


@pytest.mark.requirement("KI-6")
@pytest.mark.real
def test_secrets_are_created_once_and_renewed_if_they_change(cluster: Cluster, namespace: str, account: Path) -> None:
    first = run(account, namespace, *PARTS)
    assert first.stdout.splitlines() == [f"wrote  Secret {namespace}/{name}" for name in SECRETS]
    kept = cluster.objects.listed("v1", "Secret", namespace)["items"]
    assert {each["metadata"]["name"]: each["type"] for each in kept} == dict.fromkeys(SECRETS, "kubernetes.io/tls") | {
        "authplane-ca": "authplane.dev/ca"
    }
    authority = base64.b64decode(cluster.objects.get("v1", "Secret", "authplane-ca", namespace)["data"]["ca.crt"])
    for each in kept:
        assert base64.b64decode(each["data"]["ca.crt"]) == authority
        assert ("ca.key" in each["data"]) is (each["metadata"]["name"] == "authplane-ca")
    assert run(account, namespace, *PARTS).stdout.splitlines() == [
        f"kept   Secret {namespace}/{name}" for name in SECRETS
    ]
    assert cluster.objects.listed("v1", "Secret", namespace)["items"] == kept
    cluster.objects.patch(kept[1], {"metadata": {"labels": {"team": "shop"}}, "data": {"tls.crt": "AAAA"}})
    renewed = run(account, namespace, *PARTS)
    assert [line for line in renewed.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote  Secret {namespace}/{kept[1]['metadata']['name']}"
    ]
    assert cluster.objects.read(kept[1])["metadata"]["labels"] == {"team": "shop"}


@pytest.mark.real
def test_a_secret_that_the_role_does_not_name_is_refused(namespace: str, account: Path) -> None:
    done = run(account, namespace, "other-tls=other.internal")
    assert done.returncode == 1
    assert "The API server answered 403 to get of the Secret other-tls" in done.stderr
    assert done.stderr.strip().endswith("Add the verb get for this Secret to the Role of this program.")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("part", ["nothing", "a=", "=b", "A=b", "a=b c"])
def test_a_part_without_a_secret_or_a_name_is_a_usage_error(part: str) -> None:
    done = CliRunner().invoke(build_app(), ["certificates", part])
    assert done.exit_code == 2
    assert f'"{part}" is not a Secret and a DNS name.' in done.output
