"""`authplane control` and `authplane bootstrap` as a pair: where one listens unless told otherwise, the other asks."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.certificates import authority, client
from tests.support.eventually import eventually

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Line, run_process


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


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

    argv = [sys.executable, "-m", "authplane", "control", str(folder), "--log-format", "json"]
    async with run_process(argv, sink=sink, grace=5, environment=dict(os.environ)):

        async def listens() -> bool:
            return any("control plane listens" in line.text for line in lines)

        await eventually(listens, limit=60)
        (said,) = (json.loads(line.text) for line in lines if "control plane listens" in line.text)
        socket = runtime / "authplane" / "xds.sock"
        assert said["address"] == f"unix:{socket}"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    cluster = json.loads(invoke("bootstrap").stdout)["staticResources"]["clusters"][0]
    endpoint = cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]
    assert endpoint["address"]["pipe"]["path"] == str(socket)


def test_the_node_id_is_the_name_in_the_certificate(tmp_path: Path) -> None:
    pair = client("edge.example")
    for name, content in (("ca", authority().certificate), ("crt", pair.certificate), ("key", pair.key.reveal())):
        (tmp_path / name).write_bytes(content)
    options = ["bootstrap", "--address", "control.example:18000", "--tls-ca-path", str(tmp_path / "ca")]
    options += ["--tls-key-path", str(tmp_path / "key"), "--tls-cert-path"]
    assert json.loads(invoke(*options, str(tmp_path / "crt")).stdout)["node"]["id"] == "edge.example"
    named = json.loads(invoke(*options, str(tmp_path / "crt"), "--node", "edge.example#2").stdout)
    assert named["node"]["id"] == "edge.example#2"
    result = invoke(*options, str(tmp_path / "missing"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--node" in result.stderr
