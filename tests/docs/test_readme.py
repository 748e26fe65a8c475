"""The README shows what the quickstart prints, and its commands work from a fresh clone."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.pages import ROOT, blocks, commands, read

from authplane.cli.shared.built_folder import read_generation
from authplane.devkit.local.needed_parts import Part
from authplane.devkit.local.quickstart import ISSUER_ADDRESS, QuickstartState, agent_program, agent_tries, tries
from authplane.devkit.local.workspace import prepare_identities, prepare_workspace
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.clock import now

README = ROOT / "README.md"
USE = [block.text for block in blocks(README) if block.language == "sh" and "examples/two-hosts" in block.text]
READY = {
    "run": "Press Ctrl-C to stop",
    "control": "control plane listening",
    "authserver": '"address": "127.0.0.1:9443"',
}
"""What a command that serves prints when it is ready."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuickstartState:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/authplane"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    workspace = prepare_workspace(Path(".authplane"), now())
    prepare_identities(workspace, ISSUER_ADDRESS.host, now())
    return QuickstartState(workspace=workspace, generation=read_generation(workspace.quickstart), parts=set(Part))


def test_the_readme_has_every_command_that_the_quickstart_prints(state: QuickstartState) -> None:
    printed = [words(each.line) for each in (*tries(state), *agent_tries(state, now()))]
    assert len(printed) == 8
    text = "".join(block.text for block in blocks(README) if block.language == "sh" and "<<" not in block.text)
    shown = [words(command) for command in commands(text) if command.startswith(("curl", "TOKEN"))]
    assert shown == printed


def test_the_readme_has_the_program_that_the_quickstart_prints(state: QuickstartState) -> None:
    [program] = [block.text for block in blocks(README) if "<<'END'" in block.text]
    assert program == f"{agent_program(state)}\n"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(read(README).splitlines()) <= 250


@pytest.mark.real
@pytest.mark.requirement("O08")
async def test_each_line_of_use_works_in_order_in_a_fresh_clone(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.crt", "*.key", "secrets.yaml")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignored)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ending, serving = USE
    # As a person does it: one line after the other, in one shell.
    script = "set -e\n" + "".join(f"echo {shlex.quote(f'$ {line}')}\n{line}\n" for line in commands(ending))
    output: list[str] = []

    async def keep(line: Line) -> None:
        output.append(line.text)

    argv = ["/bin/bash", "-c", f"cd {tmp_path}\n{script}"]
    async with run_process(argv, sink=keep, environment=environment) as shell, asyncio.timeout(START_LIMIT):
        assert await shell.ended() == 0, "\n".join(output)
    assert len([line for line in output if line.startswith("$ ")]) == len(commands(ending))
    for line in commands(serving):
        await serves_until_interrupted(
            f"cd {tmp_path}\n{commands(ending)[0]}\nexec {line}", READY[line.split()[1]], environment
        )


async def serves_until_interrupted(script: str, ready: str, environment: dict[str, str]) -> None:
    output: list[str] = []

    async def keep(line: Line) -> None:
        output.append(line.text)

    async def is_ready() -> bool:
        return any(ready in line for line in output) or child.status is not None

    async with run_process(["/bin/bash", "-c", script], sink=keep, environment=environment, grace=10) as child:
        await eventually(is_ready, limit=START_LIMIT)
        assert child.status is None, "\n".join(output)
        os.kill(child.pid, signal.SIGINT)
        async with asyncio.timeout(START_LIMIT):
            assert await child.ended() == 0, "\n".join(output)


def words(command: str) -> list[str]:
    """Return the words of a command, its JSON without white space."""
    split = shlex.split(command.replace("\\\n", ""), comments=True)
    return [json.dumps(json.loads(word)) if word.startswith("{") else word for word in split]
