"""`authplane bootstrap --stats-address`: readiness and metrics of a real Envoy, and nothing else."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx2
import pytest
from click.testing import CliRunner
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.api_objects import documents
from tests.support.pages import ROOT
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import envoy_binary

ADMIN: Final = 9901
"""The default, which the manifests rely on."""


def drain_command() -> list[str]:
    """Return what the manifests run before Envoy stops, without the pause."""
    found = documents((ROOT / "deploy" / "kubernetes" / "authplane.yaml").read_text(encoding="utf-8"))
    [envoy] = [each for each in found if each["kind"] == "Deployment" and each["metadata"]["name"] == "authplane-envoy"]
    [container] = envoy["spec"]["template"]["spec"]["containers"]
    command: list[str] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["python3", "-c"]
    return [sys.executable, "-c", command[2].replace("time.sleep(15)", "")]


async def ignore(_: Line) -> None: ...


@pytest.fixture
async def stats(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an Envoy whose control plane is not there."""
    port = free_port()
    printed = CliRunner().invoke(
        build_app(), ["bootstrap", f"--stats-address=:{port}", f"--address=127.0.0.1:{free_port()}", "--node=edge"]
    )
    assert printed.exit_code == 0, printed.output
    config = json.loads(printed.output)
    for each in ("ldsConfig", "cdsConfig"):
        config["dynamicResources"][each]["initialFetchTimeout"] = "0.1s"  # it would wait for 15 s
    (tmp_path / "envoy.json").write_text(json.dumps(config), encoding="utf-8")
    argv = [str(envoy_binary()), "--config-path", str(tmp_path / "envoy.json"), "--use-dynamic-base-id"]
    async with (
        run_process(argv, sink=ignore),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield client


@pytest.mark.real
async def test_probes_and_prometheus_read_these_pages_and_no_others(stats: httpx2.AsyncClient) -> None:
    async def serves() -> bool:
        try:
            return (await stats.get("/ready")).status_code == 200
        except httpx2.HTTPError:
            return False

    await eventually(serves, limit=START_LIMIT)
    assert "envoy_server_live{} 1" in (await stats.get("/stats/prometheus")).text
    for path in ("/", "/certs", "/config_dump", "/stats", "/readyz", "/ready/../certs"):
        assert (await stats.get(path)).status_code == 404, path
    for path in ("/quitquitquit", "/ready", "/healthcheck/fail"):
        assert (await stats.post(path)).status_code == 404, path

    await asyncio.to_thread(subprocess.run, drain_command(), check=True, timeout=START_LIMIT)
    assert (await stats.get("/ready")).status_code == 503


def test_without_the_option_there_is_no_such_listener() -> None:
    printed = json.loads(CliRunner().invoke(build_app(), ["bootstrap"]).output)
    assert "listeners" not in printed["staticResources"]


def test_a_socket_is_no_address_for_probes() -> None:
    done = CliRunner().invoke(build_app(), ["bootstrap", "--stats-address=unix:/run/stats"])
    assert done.exit_code == 2
    assert '"unix:/run/stats" is not an address that probes can reach. Use host:port or :port.' in done.output
