"""ServiceAccounts of a real cluster: policies, tokens and their reviews come from its API server."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.authservers.server_process import Server
from tests.support.eventually import eventually
from tests.support.kubernetes.local_cluster import ISSUER, Cluster, running_cluster
from tests.support.mcp.mcp_checks import tool_check

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Line, run_process

pytestmark = [pytest.mark.real, pytest.mark.slow]

OBJECTS = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: agent, namespace: default}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: other, namespace: default}}
---
apiVersion: v1
kind: Service
metadata: {{name: tools, namespace: default}}
spec: {{ports: [{{name: mcp, port: 8080}}]}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: tools, namespace: default}}
spec: {{type: MCP, mcp: {{serviceName: tools, port: 8080}}}}
---
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane, namespace: default}}
spec: {{issuers: [{{url: '{ISSUER}', serviceAccounts: {{audiences: [shop]}}}}]}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: tools, namespace: default}}
spec:
  targetRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: tools}}]
  action: Allow
  rules:
  - name: agents
    source: {{type: ServiceAccount, serviceAccount: {{name: agent}}}}
    authorization: [{{type: InlineTools, tools: [add]}}]
"""


@pytest.fixture(scope="module")
def defined(cluster_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with our definitions of all kinds, and the objects."""
    folder = tmp_path_factory.mktemp("accounts")
    with running_cluster(folder, cluster_programs) as cluster:
        crds = folder / "crds.yaml"
        crds.write_text(CliRunner().invoke(build_app(), ["crds", "--all"]).stdout, encoding="utf-8")
        cluster.install_crds([crds])
        cluster.objects.create_all(OBJECTS)
        yield cluster


async def test_the_policy_server_decides_by_tokens_that_the_cluster_reviews(defined: Cluster) -> None:
    read = ["--kubernetes", "--kubeconfig", str(defined.kubeconfig), "--namespaces", "default"]
    target = {"authplane.target": "Backend/default/tools"}

    async with Server().running("policy", *read) as server:

        async def ask(account: str, *audiences: str) -> int:
            token = defined.service_account_token("default", account, *audiences)
            request = tool_check(context=target, headers={"authorization": f"Bearer {token}"})
            answer: Any = await server.answer(request)
            return 200 if answer.HasField("ok_response") else int(answer.denied_response.status.code)

        assert await ask("agent", "shop") == 200
        assert await ask("agent", "elsewhere") == 401
        assert await ask("agent") == 401
        assert await ask("other", "shop") == 401


@pytest.mark.requirement("KU-20")
async def test_the_control_plane_writes_the_status_of_the_policy_and_gives_up_its_lease(
    defined: Cluster, tmp_path: Path
) -> None:
    objects = defined.objects
    objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leases"}})
    lines: list[str] = []

    async def sink(line: Line) -> None:
        lines.append(line.text)

    argv = [sys.executable, "-m", "authplane", "control", "--kubernetes", "--kubeconfig", str(defined.kubeconfig)]
    argv += ["--namespaces", "default", "--lease-namespace", "leases", "--metrics-address", ""]
    argv += ["--address", f"unix:{tmp_path}/xds.sock", "--state-dir", str(tmp_path / "state")]

    def holder() -> str:
        lease = objects.get("coordination.k8s.io/v1", "Lease", "authplane-status", "leases")
        found: str = lease["spec"]["holderIdentity"]
        return found

    async with run_process(argv, sink=sink, grace=20) as child:

        async def told() -> bool:
            assert child.status is None, lines
            policy = objects.get("agentic.networking.x-k8s.io/v1alpha1", "AccessPolicy", "tools")
            entries = policy.get("status", {}).get("ancestors", ())
            found = {each["type"]: each["status"] for entry in entries for each in entry["conditions"]}
            return found.get("Accepted") == "True" and found.get("ResolvedRefs") == "True"

        await eventually(told)

        async def configured() -> bool:
            found = objects.get("authplane.dev/v1alpha1", "AuthplaneConfiguration", "authplane").get("status", {})
            return [each["status"] for each in found.get("conditions", ()) if each["type"] == "Valid"] == ["True"]

        await eventually(configured)
        assert holder()
    assert holder() == ""
    assert not [each for each in lines if "cannot write" in each], lines
