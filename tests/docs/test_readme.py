"""The README shows what the quickstart prints."""

import shlex
import sys
from pathlib import Path

import pytest
from tests.support.pages import ROOT, blocks

from authplane.cli.shared.built_folder import read_generation
from authplane.devkit.local.quickstart import ISSUER_ADDRESS, agent_program, agent_tries, tries
from authplane.devkit.local.workspace import prepare_identities, prepare_workspace
from authplane.runtime.clock import now

SHOWN = [block for block in blocks(ROOT / "README.md") if block.language in {"sh", "python"}]


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def test_the_readme_has_every_line_that_the_quickstart_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/authplane"])
    workspace = prepare_workspace(Path(".authplane"), now())
    prepare_identities(workspace, ISSUER_ADDRESS.host, now())
    graph = read_generation(workspace.quickstart).built.graph
    printed = [words(each.line) for each in (*tries(workspace, graph), *agent_tries(workspace, graph))]
    assert len(printed) == 8
    # The README breaks lines as shells let it; what they read is the same.
    lines = [line for block in SHOWN for line in block.text.replace("\\\n", "").splitlines()]
    shown = [words(line) for line in lines if line.startswith(("curl", "TOKEN"))]
    assert [each for each in printed if each not in shown] == []
    assert [each for each in shown if each not in printed] == []
    [program] = [block.text for block in SHOWN if block.language == "python"]
    calls = [line.strip() for line in agent_program(workspace, graph).splitlines() if "print(" in line]
    assert [line.strip() for line in program.splitlines() if "print(" in line] == calls
