"""A control plane in a cluster with Contour's definitions says which fields the API server drops."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.local_cluster import Cluster
from tests.support.pages import ROOT

from authplane.runtime.child_processes import Line, run_process

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.requirement("KC-6")
async def test_the_configuration_names_the_fields_that_are_dropped(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    upstream_crds.install_crds([ROOT / "deploy" / "kubernetes" / "crds.yaml"])
    configuration: dict[str, Any] = {
        "apiVersion": "authplane.dev/v1alpha1",
        "kind": "AuthplaneConfiguration",
        "metadata": {"name": "authplane", "namespace": namespace},
        "spec": {},
    }
    upstream_crds.objects.create(configuration)
    part = ["--kubernetes", "--kubeconfig", str(upstream_crds.kubeconfig), "--namespaces", namespace]
    places = ["--address", f"unix:{tmp_path}/xds.sock", "--state-dir", str(tmp_path / "state")]
    argv = [sys.executable, "-m", "authplane", "control", *part, *places, "--lease-namespace", namespace]
    argv += ["--metrics-address", ""]

    found: dict[str, Any] = {}
    lines: list[str] = []

    async def sink(line: Line) -> None:
        lines.append(line.text)

    async def said() -> bool:
        conditions = upstream_crds.objects.read(configuration).get("status", {}).get("conditions", [])
        found.update({each["type"]: each for each in conditions})
        # The API server publishes schemas some time after it serves the kinds.
        return "spec.services[].validation" in found.get("SchemasComplete", {}).get("message", "")

    async with run_process(argv, sink=sink, grace=20):
        await eventually(said, limit=START_LIMIT)
    condition = found["SchemasComplete"]
    assert (condition["status"], condition["reason"]) == ("False", "FieldsDropped"), lines
    assert "extensionservices.projectcontour.io: spec.services[].protocol" in condition["message"]
    assert "spec.services[].validation" in condition["message"]
