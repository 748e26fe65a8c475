"""The units for machines without Kubernetes: systemd accepts them, and authplane accepts their command lines."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.deploy.command_lines import parse
from tests.support.eventually import START_LIMIT
from tests.support.pages import ROOT

UNITS: Final = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAMS: Final = "/opt/authplane/bin/"
MOST_EXPOSED: Final = 2.0
"""Of 10, as ``systemd-analyze security`` counts."""


def commands(unit: Path) -> list[list[str]]:
    """Return the command lines of authplane in a unit."""
    text = unit.read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for line in re.findall(r"^ExecStart(?:Pre)?=(.*)$", text, re.MULTILINE):
        words = shlex.split(line)
        if words[0] == "/bin/sh":
            words = [f"{PROGRAMS}authplane", *re.findall(r"authplane (\w+)", words[2]), *words[4:]]
        if words[0] == f"{PROGRAMS}authplane":
            found.append([word.replace("${CONTROL}", "control.internal") for word in words[1:]])
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_authplane_accepts_the_command_lines(unit: Path, tmp_path: Path) -> None:
    found = commands(unit)
    assert len(found) == 1
    for each in found:
        given = parse([word.replace("/etc/authplane/gateway", str(tmp_path)) for word in each])
        assert given["tls_ca_path"] == "/etc/authplane/tls-ca.crt"


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_no_unit_runs_as_root(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    assert "\nUser=authplane\n" in text
    assert "\nNoNewPrivileges=yes\n" in text
    assert "\nProtectSystem=strict\n" in text


@pytest.fixture
def analyze(tmp_path: Path) -> str:
    """Return the program that checks units; the units of this test name programs that exist."""
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed; on Debian it is in the package systemd")
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace(PROGRAMS, f"{ROOT}/.venv/bin/")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return found


@pytest.mark.requirement("KI-9")
@pytest.mark.real
def test_systemd_finds_no_fault(analyze: str, tmp_path: Path) -> None:
    done = run(analyze, "verify", *map(str, sorted(tmp_path.glob("*.service"))))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.real
def test_systemd_finds_a_fault(analyze: str, tmp_path: Path) -> None:
    path = tmp_path / UNITS[0].name
    path.write_text(path.read_text(encoding="utf-8").replace("ProtectHome=yes", "ProtectHome=maybe"), encoding="utf-8")
    assert "maybe" in run(analyze, "verify", str(path)).stderr


@pytest.mark.requirement("KI-9")
@pytest.mark.real
def test_the_programs_are_confined(analyze: str, tmp_path: Path) -> None:
    for unit in sorted(tmp_path.glob("*.service")):
        done = run(analyze, "security", "--offline=true", "--no-pager", str(unit))
        [exposed] = re.findall(r"Overall exposure level for .*: ([\d.]+) ", done.stdout)
        assert float(exposed) <= MOST_EXPOSED, unit.name


def run(*argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=START_LIMIT)
