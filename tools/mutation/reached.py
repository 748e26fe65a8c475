"""Which tests run which lines, and so have to notice a change there."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from coverage import CoverageData
from tools.mutation.plugin import TIMES

SUITES: Final = (
    "tests/core", "tests/cel", "tests/matching", "tests/resources", "tests/sources", "tests/policy", "tests/xds",
    "tests/controlplane/graph", "tests/controlplane/render", "tests/controlplane/status", "tests/controlplane/serving",
    "tests/authserver/backends", "tests/authserver/engine", "tests/authserver/records", "tests/dataplane",
    "tests/devkit", "tests/docs/test_placement_page.py", "tests/golden", "tests/oracles",
)  # fmt: skip
"""Tests of decisions that need few programs besides this one."""

_Lines: TypeAlias = Mapping[str, Sequence[int]]


class Run(NamedTuple):
    """What a test does when nothing is changed."""

    seconds: float
    lines: _Lines
    """The lines that it runs, by module."""


class Reached:
    """The tests that run a line, the quickest first."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for name, run in runs.items():
            for path, lines in run.lines.items():
                for line in lines:
                    self._lines[path][line].add(name)
        self._texts: dict[str, str] = {}

    def tests(self, path: str, line: int, seconds: float, *, imported: bool = False) -> list[str]:
        """Return tests for a change of a line, as many as take so many seconds together.

        Those come first whose files import the module: it is what they are about. Lines that run when their module is
        imported count for all of those, and for every test that runs anything of the module, or of one that imports it.
        """
        known, about = self._lines.get(path, {}), self._about(path)
        found = () if imported else known.get(line, ())
        if not found:
            found = about | (self._of_module(path) or self._of_importers(path))
        chosen: list[str] = []
        left = seconds
        for name in sorted(found, key=lambda each: (each not in about, self._runs[each].seconds, each)):
            left -= self._runs[name].seconds
            if left < 0 and chosen:
                break
            chosen.append(name)
        return chosen

    def _of_module(self, path: str) -> set[str]:
        return {name for names in self._lines.get(path, {}).values() for name in names}

    def _of_importers(self, path: str) -> set[str]:
        importers = [each for each in self._lines if _module(path) in Path(each).read_text(encoding="utf-8")]
        return {name for each in importers for name in self._of_module(each)}

    def _about(self, path: str) -> set[str]:
        files = {_file(name) for name in self._runs}
        named = {each for each in files if f"from {_module(path)} import" in self._text(each)}
        return {name for name in self._runs if _file(name) in named}

    def _text(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = Path(file).read_text(encoding="utf-8")
        return self._texts[file]


def find_reached(work: Path) -> Reached:
    """Run the tests once and note which lines each of them runs.

    What was noted before in ``work`` is used again, but for files of tests that have changed since: those are run anew.
    """
    noted = work / "reached.json"
    runs: dict[str, Run] = {}
    files: dict[str, str] = {}
    if noted.exists():
        before = json.loads(noted.read_text(encoding="utf-8"))
        runs, files = {name: Run(*run) for name, run in before["runs"].items()}, before["files"]
    now = {str(path): sha256(path.read_bytes()).hexdigest() for path in _test_files()}
    changed = [path for path, digest in now.items() if files.get(path) != digest]
    if changed or files.keys() - now.keys():
        runs = {name: run for name, run in runs.items() if now.get(_file(name)) == files[_file(name)]}
        runs |= _run(changed, work) if changed else {}
        noted.write_text(json.dumps({"files": now, "runs": runs}), encoding="utf-8")
    return Reached(runs)


def _test_files() -> Iterable[Path]:
    suites = (Path(each) for each in SUITES)
    return sorted(path for each in suites for path in ([each] if each.is_file() else each.rglob("test_*.py")))


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def _file(name: str) -> str:
    return name.partition("::")[0]


def _run(files: Sequence[str], work: Path) -> dict[str, Run]:
    """Run files of tests; those that fail without any change are left out, since they can notice nothing."""
    data, times = work / "coverage", work / "times.json"
    data.unlink(missing_ok=True)
    command = [sys.executable, "-m", "coverage", "run", "--source=src/authplane", f"--data-file={data}", "-m", "pytest"]
    command += ["-q", "-p", "tools.mutation.plugin", "-p", "no:cacheprovider", *files]
    subprocess.run(command, check=False, env={**os.environ, TIMES: str(times)})
    seconds: Mapping[str, float] = json.loads(times.read_text(encoding="utf-8"))
    lines: dict[str, dict[str, list[int]]] = {name: {} for name in seconds}
    noted = CoverageData(basename=str(data))
    noted.read()
    for file in noted.measured_files():
        path = str(Path(file).relative_to(Path.cwd()))
        for line, names in noted.contexts_by_lineno(file).items():
            for name in names:
                if name in seconds:
                    lines[name].setdefault(path, []).append(line)
    return {name: Run(took, lines[name]) for name, took in seconds.items()}


def module_paths(patterns: Sequence[str]) -> list[str]:
    """Return the modules that decide, sorted."""
    return sorted({str(path) for pattern in patterns for path in Path("src/authplane").glob(pattern)})
