"""What ``make fuzz`` notices."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.progress import Progress
from tests.oracles.cases import KINDS
from tests.oracles.fuzz import ROOT, SHARES, Run, Tally, fuzz, main

pytestmark = pytest.mark.real

DIES: Final = """
import os, pathlib, sys
kind, first, last, place = sys.argv[1:]
if int(first) <= 12:
    pathlib.Path(place).write_text("12")
    os.abort()
"""
DIFFERS: Final = """
import json, sys
kind, first, last, place = sys.argv[1:]
print(json.dumps({"number": int(first) + 1, "said": "another branch"}), flush=True)
sys.stdin.read()
"""


async def run(script: str, folder: Path) -> tuple[Tally, str]:
    output = io.StringIO()
    with Progress(console=Console(file=output, width=200)) as progress:
        made = Run(10, folder, progress, (sys.executable, "-c", script))
        await made.everything(1_000)
    return made.tally, output.getvalue()


async def test_the_end_of_a_process_is_reported_with_its_number_and_the_rest_is_tried(tmp_path: Path) -> None:
    tally, output = await run(DIES, tmp_path)
    assert sorted(tally.differing) == sorted(SHARES)
    assert tally.done == {kind: 3 * KINDS[kind].cases for kind in KINDS}
    for kind in KINDS:
        assert f"{kind} 12 differs:\nthe process ended with -6\n" in output
        assert f"Again: python -m tests.oracles.fuzz --again {kind} 12\n" in output


async def test_what_differs_is_shown_a_few_times(tmp_path: Path) -> None:
    tally, output = await run(DIFFERS, tmp_path)
    assert tally.differing.count("hostile") == 5
    assert [f"hostile {number} differs" in output for number in (11, 13, 15, 17, 19, 21)] == [True] * 5 + [False]


def test_some_cases_of_each_kind_are_tried() -> None:
    output = io.StringIO()
    tally = fuzz(200, 7, Console(file=output, width=200))
    assert tally.differing == []
    numbers = {kind: max(1, round(200 * share / KINDS[kind].cases)) for kind, share in SHARES.items()}
    assert tally.done == {kind: numbers[kind] * KINDS[kind].cases for kind in KINDS}


def test_one_number_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--again", "trees", "7"]) == 0
    assert capsys.readouterr().out == "nothing differs\n"


SAME: Final = """
from hashlib import sha256
from tests.oracles.cases import Configs, Expressions, Hostile, spoiled_listener
made = sha256()
for number in range(30):
    made.update(spoiled_listener(Configs(number)))
    made.update(Hostile(number).message().SerializeToString(deterministic=True))
    made.update(repr(Expressions(number).truth()).encode())
print(made.hexdigest())
"""


def test_a_number_is_the_same_case_in_every_process() -> None:
    order = [sys.executable, "-c", SAME]
    digests = {
        subprocess.run(
            order, check=True, capture_output=True, timeout=60, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
