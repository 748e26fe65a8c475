"""`authplane test --watch`: after a change, the tests run again, and what differs comes first."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.test_check import WORLD
from tests.cli.test_policy_tests import ALLOWED, DENIED, write
from tests.support.eventually import eventually

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Child, Line, run_process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "shop"
    place.mkdir()
    (place / "all.yaml").write_text("\n---\n".join(WORLD), encoding="utf-8")
    return place


@asynccontextmanager
async def watching(*arguments: str) -> AsyncGenerator[tuple[Child, list[str]]]:
    lines: list[str] = []

    async def sink(line: Line) -> None:
        lines.append(line.text)

    command = [sys.executable, "-m", "authplane", "test", "--watch", *arguments]
    async with run_process(command, sink=sink) as child:
        yield child, lines


async def says(lines: list[str], words: str, times: int = 1) -> None:
    async def holds() -> bool:
        return sum(words in line for line in lines) >= times

    await eventually(holds)


@pytest.mark.real
@pytest.mark.requirement("Y02")
async def test_the_tests_run_again_after_each_change_until_ctrl_c(folder: Path) -> None:
    tests = write(folder / "a.test.yaml", ALLOWED, DENIED)
    report = folder / "results.xml"
    async with watching(str(folder), "--junit", str(report)) as (child, lines):
        await says(lines, "2 passed, 0 failed")
        # A case that fails now comes before one that passes as before.
        write(tests, ALLOWED, DENIED.replace("401", "403"))
        await says(lines, "1 passed, 1 failed")
        at = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
        assert "nobody may not" in lines[at]
        assert "expected httpStatus 403, got 401" in lines[at + 1]
        assert "agents may add" in lines[at + 2]
        # What cannot be read is said, and the next change corrects it.
        tests.write_text("cases: [", encoding="utf-8")
        await says(lines, "1 error in files")
        # A policy changes as well as a test, and a new folder is seen.
        (folder / "more").mkdir()
        write(folder / "more" / "b.test.yaml", DENIED, policies="policies: ../all.yaml\n")
        write(tests, ALLOWED)
        await says(lines, "2 passed, 0 failed", times=2)
        assert report.exists()
        os.kill(child.pid, signal.SIGINT)
        assert await child.ended() == 0
    assert not any("Traceback" in line for line in lines)


def test_json_is_for_one_run(folder: Path) -> None:
    result = CliRunner().invoke(build_app(), ["test", str(folder), "--watch", "-o", "json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "authplane: --watch prints text only. Remove -o json, or remove --watch.\n"
