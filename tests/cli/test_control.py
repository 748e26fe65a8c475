"""`authplane control` and `authplane bootstrap` as a pair: where one listens unless told otherwise, the other asks."""

import json
import os
import socket
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs
from tests.support.certificates import authority, client
from tests.support.eventually import eventually
from tests.support.ports import free_port

from authplane.cli.control import tell
from authplane.cli.main import build_app
from authplane.controlplane.serving.runtime.control_plane import Rebuilt
from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, issue
from authplane.resources.documents import Finding, Place
from authplane.runtime.child_processes import Line, run_process


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


@pytest.mark.real
@pytest.mark.requirement("X02")
async def test_by_default_the_control_plane_listens_on_a_socket_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, folder, lines = tmp_path / "run", tmp_path / "folder", list[Line]()
    runtime.mkdir(mode=0o700)
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    async def sink(line: Line) -> None:
        lines.append(line)

    argv = [sys.executable, "-m", "authplane", "control", str(folder), "--log-format", "json", "--metrics-address", ""]
    async with run_process(argv, sink=sink, grace=5, environment=dict(os.environ)):

        async def listens() -> bool:
            return any("control plane listening" in line.text for line in lines)

        await eventually(listens)
        (said,) = (json.loads(line.text) for line in lines if "control plane listening" in line.text)
        socket = runtime / "authplane" / "xds.sock"
        assert said["address"] == f"unix:{socket}"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    cluster = json.loads(invoke("bootstrap").stdout)["staticResources"]["clusters"][0]
    endpoint = cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]
    assert endpoint["address"]["pipe"]["path"] == str(socket)


@pytest.mark.real
@pytest.mark.requirement("O01", "A04")
async def test_the_control_plane_serves_health_readiness_and_metrics_to_known_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder, port = tmp_path / "folder", free_port()
    folder.mkdir()
    argv = [sys.executable, "-m", "authplane", "control", str(folder)]
    argv += ["--metrics-address", f"127.0.0.1:{port}", "--metrics-host", "control.example"]

    async def ignore(_: Line) -> None:
        pass

    async with (
        run_process(argv, sink=ignore, grace=5, environment=dict(os.environ)),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):

        async def ready() -> bool:
            try:
                return (await client.get("/readyz")).text == "ready\n"
            except httpx2.TransportError:
                return False

        await eventually(ready, limit=60)
        assert (await client.get("/healthz")).text == "alive\n"
        metrics = await client.get("/metrics", headers={"host": "control.example"})
        assert 'authplane_control_generations_total{result="ok"} 1.0' in metrics.text.splitlines()
        assert (await client.get("/metrics", headers={"host": "other.example"})).status_code == 421
        assert (await client.get("/config_dump")).status_code == 404


@pytest.mark.requirement("A03")
def test_an_admin_address_that_cannot_be_used_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = invoke("control", str(tmp_path), "--metrics-address", address)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert address in result.stderr
    assert "Set --metrics-address to another address" in result.stderr
    result = invoke("control", str(tmp_path), "--metrics-address", ":0")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "Refusing to serve /metrics" in result.stderr


def test_the_node_id_is_the_name_in_the_certificate(tmp_path: Path) -> None:
    pair = client("edge.example")
    for name, content in (("ca", authority().certificate), ("crt", pair.certificate), ("key", pair.key.reveal())):
        (tmp_path / name).write_bytes(content)
    options = ["bootstrap", "--address", "control.example:18000", "--tls-ca-path", str(tmp_path / "ca")]
    options += ["--tls-key-path", str(tmp_path / "key"), "--tls-cert-path"]
    assert json.loads(invoke(*options, str(tmp_path / "crt")).stdout)["node"]["id"] == "edge.example"
    named = json.loads(invoke(*options, str(tmp_path / "crt"), "--node", "edge.example#2").stdout)
    assert named["node"]["id"] == "edge.example#2"
    result = invoke(*options, str(tmp_path / "missing"), "--skip-file-checks")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--node" in result.stderr


COMMON = issue(
    authority(),
    Leaf(name="edge.example", usage=Usage.CLIENT, dns=("other",)),
    now=datetime.now(UTC),
    lifetime=timedelta(days=1),
)
FILES = {
    "a CA that does not exist": ({"ca": b""}, 1, "/ca: No such file or directory"),
    "a CA that is none": ({"ca": b"no PEM"}, 1, "/ca has no CA certificate"),
    "a key of another certificate": ({"key": client("other").key.reveal()}, 1, "are not a certificate and its private"),
    "a certificate of another node": (
        {"crt": client("b").certificate, "key": client("b").key.reveal()},
        1,
        "URIs in the certificate: b",
    ),
    "a certificate with the id as common name": (
        {"crt": COMMON.certificate, "key": COMMON.key.reveal()},
        0,
        "--node-name cn",
    ),
}


@pytest.mark.parametrize(("others", "status", "said"), FILES.values(), ids=FILES.keys())
def test_files_that_cannot_connect_are_refused(
    tmp_path: Path, others: dict[str, bytes], status: int, said: str
) -> None:
    own = client("edge.example")
    right = {"ca": authority().certificate, "crt": own.certificate, "key": own.key.reveal()}
    for name, content in (right | others).items():
        if content:
            (tmp_path / name).write_bytes(content)
    paths = {"ca": "ca", "cert": "crt", "key": "key"}
    options = [f"--tls-{option}-path={tmp_path / name}" for option, name in paths.items()]
    command = ["bootstrap", "--address", "control.example:18000", "--node", "edge.example", *options]
    result = invoke(*command)
    assert (result.exit_code, result.stderr.count("\n")) == (status, 1)
    assert said in result.stderr
    assert invoke(*command, "--skip-file-checks").exit_code == 0


def test_the_log_names_the_problems_that_are_gone() -> None:
    gone = Finding(Place("a.yaml", 3, 1), Ref("Backend", "shop", "a"), Problem((), "FieldInvalid", "No. Correct it."))
    with capture_logs() as lines:
        tell(Rebuilt(difference={}, appeared=(), resolved=(gone,), seconds=0.1, first=False))
    [line] = lines
    assert (line["problems_resolved"], line["resolved"]) == (1, ["FieldInvalid of Backend/shop/a"])
