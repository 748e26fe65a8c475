"""Which tests run which lines, and so have to notice a change there."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from coverage import CoverageData
from tools.mutation.plugin import TIMES

SUITES: Final = (
    "tests/app", "tests/base", "tests/cel", "tests/dataplane", "tests/filters", "tests/graph", "tests/matching",
    "tests/oracles", "tests/policy", "tests/render", "tests/resources", "tests/xds",
)  # fmt: skip
"""Tests of decisions that need few programs besides this one."""

_Lines: TypeAlias = dict[str, list[str]]


class Reached:
    """The tests that run a line, the quickest first."""

    def __init__(self, lines: Mapping[str, _Lines], times: Mapping[str, float]) -> None:
        self._lines = lines
        self._times = times

    def tests(self, path: str, line: int, seconds: float) -> list[str]:
        """Return tests for a change of a line, as many as take so many seconds together.

        Lines that run when their module is imported count for every test that runs anything of the module, or of one
        that imports it.
        """
        found = self._lines.get(path, {}).get(str(line)) or self._of_module(path) or self._of_importers(path)
        chosen: list[str] = []
        left = seconds
        for name in sorted(found, key=lambda each: self._times[each]):
            left -= self._times[name]
            if left < 0 and chosen:
                break
            chosen.append(name)
        return chosen

    def _of_module(self, path: str) -> set[str]:
        return {name for names in self._lines.get(path, {}).values() for name in names}

    def _of_importers(self, path: str) -> set[str]:
        module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        importers = (each for each in self._lines if module in Path(each).read_text(encoding="utf-8"))
        return {name for each in importers for name in self._of_module(each)}


def find_reached(work: Path) -> Reached:
    """Run the tests once and note which lines each of them runs; what was noted before in ``work`` is used again."""
    lines, times = work / "lines.json", work / "times.json"
    if not lines.exists():
        data = work / "coverage"
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            "--source=src/authplane",
            f"--data-file={data}",
            "-m",
            "pytest",
        ]
        command += ["-q", "-p", "tools.mutation.plugin", "-p", "no:cacheprovider", *SUITES]
        subprocess.run(command, check=False, env={**os.environ, TIMES: str(times)})
        lines.write_text(json.dumps(_lines(data, json.loads(times.read_text(encoding="utf-8")))), encoding="utf-8")
    return Reached(json.loads(lines.read_text(encoding="utf-8")), json.loads(times.read_text(encoding="utf-8")))


def _lines(data: Path, passed: Mapping[str, float]) -> Mapping[str, _Lines]:
    noted = CoverageData(basename=str(data))
    noted.read()
    found: dict[str, _Lines] = defaultdict(dict)
    for file in noted.measured_files():
        path = str(Path(file).relative_to(Path.cwd()))
        for line, names in noted.contexts_by_lineno(file).items():
            tests = sorted(name for name in names if name in passed)
            if tests:
                found[path][str(line)] = tests
    return found


def module_paths(patterns: Sequence[str]) -> list[str]:
    """Return the modules that decide, sorted."""
    return sorted({str(path) for pattern in patterns for path in Path().glob(pattern)})
