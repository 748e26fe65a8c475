"""Commands on a live cluster say what they say of a folder, and programs outlive the API server."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Line, run_process
from authplane.sources.runtime.read_cluster import ClusterPart, root_of

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def defined(cluster_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with our definitions of all kinds, which tests restart."""
    folder = tmp_path_factory.mktemp("defined")
    with running_cluster(folder, cluster_programs) as cluster:
        crds = folder / "crds.yaml"
        crds.write_text(_invoke("crds", "--all").stdout, encoding="utf-8")
        cluster.install_crds([crds])
        yield cluster


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), arguments)


def _in(cluster: Cluster, namespace: str) -> list[str]:
    return ["--kubernetes", "--kubeconfig", str(cluster.kubeconfig), "--namespaces", namespace]


def _create(cluster: Cluster, namespace: str, folder: Path, copy: Path) -> Path:
    """Create the objects of an example in a namespace of their own; return a folder with the same objects."""
    cluster.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    copy.mkdir()
    for file in sorted(folder.glob("*.yaml")):
        text = file.read_text(encoding="utf-8").replace("namespace: default", f"namespace: {namespace}")
        (copy / file.name).write_text(text, encoding="utf-8")
        cluster.objects.create_all(text)
    return copy


POLICIES = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: tools, namespace: default}
spec: {type: MCP, mcp: {serviceName: tools, port: 8080}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: tools, namespace: default}
spec:
  targetRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: tools}]
  rules:
  - name: callers
    source: {type: SPIFFE, spiffe: ["spiffe://example.org/ns/default/sa/caller"]}
    authorization: [{type: InlineTools, tools: [add]}]
---
apiVersion: v1
kind: Service
metadata: {name: tools, namespace: default}
spec: {ports: [{name: mcp, port: 8080}]}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web, namespace: default}
spec:
  virtualhost: {fqdn: web.example}
  routes: [{services: [{name: tools, port: 8080}]}]
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: orphan, namespace: default}
spec:
  routes: [{services: [{name: missing, port: 8080}]}]
"""


@pytest.fixture(scope="module")
def same(defined: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder, and create the same objects in the namespace "same"."""
    written = tmp_path_factory.mktemp("written")
    (written / "all.yaml").write_text(POLICIES, encoding="utf-8")
    return _create(defined, "same", written, tmp_path_factory.mktemp("copies") / "same")


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_a_command_prints_the_same_for_a_cluster(defined: Cluster, same: Path, command: str) -> None:
    cluster = _invoke(command, *_in(defined, "same"), "-o", "json")
    folder = _invoke(command, str(same), "-o", "json")
    assert cluster.exit_code == folder.exit_code == 0, cluster.output
    assert json.loads(cluster.stdout) == json.loads(folder.stdout)


def test_validate_names_the_object_and_the_field(defined: Cluster, same: Path) -> None:
    printed = _invoke("validate", *_in(defined, "same"))
    assert printed.exit_code == 1
    [orphan] = [
        each for each in printed.stdout.splitlines() if each.startswith("httpproxies.projectcontour.io/same/orphan")
    ]
    assert "error" in orphan
    assert _without_places(_invoke("validate", *_in(defined, "same"), "-o", "json")) == _without_places(
        _invoke("validate", str(same), "-o", "json")
    )


def _without_places(result: Result) -> list[dict[str, Any]]:
    found = [{**each, "file": "", "line": 0, "column": 0} for each in json.loads(result.stdout)]
    return sorted(found, key=lambda each: (each["resource"], each["path"], each["reason"]))


def test_check_and_status_and_lint_read_a_cluster(defined: Cluster, same: Path, tmp_path: Path) -> None:
    assert same.is_dir()
    request = tmp_path / "request.yaml"
    request.write_text(
        "target: {kind: Backend, name: tools, namespace: same}\nmcp: {method: tools/call, params: {name: add}}\n"
        "peer: {spiffe: 'spiffe://example.org/ns/default/sa/caller'}\n"
    )
    status = _invoke("status", *_in(defined, "same"), "-o", "json")
    assert {each["metadata"]["name"] for each in json.loads(status.stdout)} >= {"tools", "web", "orphan"}
    assert _invoke("lint", *_in(defined, "same")).exit_code == 0
    checked = _invoke("check", *_in(defined, "same"), "--request", str(request), "-o", "json")
    folder = _invoke("check", str(same), "--request", str(request), "-o", "json")
    assert (checked.exit_code, folder.exit_code) == (0, 0), checked.output
    assert json.loads(checked.stdout) == json.loads(folder.stdout)
    assert json.loads(checked.stdout)["decision"] == "allow"


REFUSED = {
    "neither": ([], "Missing argument 'DIR'. Name a folder, or use --kubernetes."),
    "both": (["folder", "--kubernetes"], "You cannot combine DIR and --kubernetes."),
    "options of a cluster alone": (["folder", "--context", "c"], "Options for a cluster require --kubernetes."),
    "no namespace": (["--kubernetes", "--namespaces", "a_b"], '"a_b" is not a namespace.'),
    "no kubeconfig": (["--kubernetes", "--kubeconfig", "/none"], "/none does not exist."),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_do_not_fit(arguments: list[str], says: str) -> None:
    result = _invoke("validate", *arguments)
    assert (result.exit_code, says in result.output.replace("\n", " ")) == (2, True), result.output


def test_an_api_server_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"current-context: x\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{free_port()}'}}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    result = _invoke("validate", "--kubernetes", "--kubeconfig", str(config))
    assert (result.exit_code, "does not answer: " in result.output) == (2, True), result.output


@asynccontextmanager
async def _running(tmp_path: Path, *arguments: str) -> AsyncIterator[tuple[httpx2.AsyncClient, list[Line]]]:
    port, lines = free_port(), list[Line]()

    async def sink(line: Line) -> None:
        lines.append(line)

    argv = [sys.executable, "-m", "authplane", *arguments, "--metrics-address", f"127.0.0.1:{port}"]
    argv += ["--log-format", "json", "--state-dir", str(tmp_path / "state")]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    async with (
        run_process(argv, sink=sink, grace=20, environment=environment),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield client, lines


def _answers(client: httpx2.AsyncClient, path: str, status: int) -> Any:
    async def asked() -> bool:
        try:
            return (await client.get(path)).status_code == status
        except httpx2.TransportError:
            return False

    return eventually(asked, limit=START_LIMIT)


async def test_the_control_plane_waits_for_the_first_list_and_then_keeps_what_it_knows(
    defined: Cluster, tmp_path: Path
) -> None:
    _create(defined, "served", _written(tmp_path), tmp_path / "copy")
    defined.stop_api_server()
    arguments = ["control", *_in(defined, "served"), "--address", f"unix:{tmp_path}/xds.sock"]
    async with _running(tmp_path, *arguments) as (client, lines):
        await _answers(client, "/healthz", 200)
        await _answers(client, "/readyz", 503)
        assert not (tmp_path / "xds.sock").exists()
        defined.start_api_server()
        await _answers(client, "/readyz", 200)
        assert await _generation(client) == 1

        async def written() -> bool:
            found = defined.objects.get("projectcontour.io/v1", "HTTPProxy", "orphan", "served")
            return bool(found.get("status", {}).get("currentStatus") == "orphaned")

        await eventually(written)
        defined.stop_api_server()

        async def warned() -> bool:
            return any("cannot follow a kind of the cluster" in each.text for each in lines)

        await eventually(warned)
        await _answers(client, "/readyz", 200)
        defined.start_api_server()
        before = await _generation(client)
        proxy = defined.objects.get("projectcontour.io/v1", "HTTPProxy", "web", "served")
        defined.objects.patch(proxy, {"spec": {"virtualhost": {"fqdn": "other.example"}}})

        async def rebuilt() -> bool:
            return await _generation(client) > before

        await eventually(rebuilt)


async def _generation(client: httpx2.AsyncClient) -> int:
    """Return how many configurations were built."""
    text = (await client.get("/metrics")).text
    [line] = [
        each for each in text.splitlines() if each.startswith("authplane_control_generations_total") and "ok" in each
    ]
    return int(float(line.split()[-1]))


def _written(tmp_path: Path) -> Path:
    folder = tmp_path / "written"
    folder.mkdir()
    (folder / "all.yaml").write_text(POLICIES, encoding="utf-8")
    return folder


async def test_the_policy_server_is_ready_when_it_has_read_the_cluster(defined: Cluster, tmp_path: Path) -> None:
    _create(defined, "decided", _written(tmp_path), tmp_path / "copy")
    arguments = ["authserver", "policy", *_in(defined, "decided"), "--address", f"unix:{tmp_path}/policy.sock"]
    async with _running(tmp_path, *arguments) as (client, lines):
        await _answers(client, "/readyz", 200)
        [applied] = [json.loads(each.text) for each in lines if "applied policies" in each.text]
        assert (applied["policies"], applied["not_applied"], applied["targets"]) == (1, 0, 1)


def test_a_part_of_a_cluster_has_a_name_of_its_own() -> None:
    part = ClusterPart(namespaces=("b", "a"), selector="team=x")
    assert str(root_of("https://[fd00::1]:6443/k", part)) == "/kubernetes/%5Bfd00%3A%3A1%5D%3A6443%2Fk/a+b+team%3Dx"
