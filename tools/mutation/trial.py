"""What becomes of a change: tests run against a copy of the code with it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from tools.mutation.mutants import Mutant
from tools.mutation.plugin import name_of

SECONDS: Final = 60.0
"""How long the tests of one change may take together when nothing is changed; a change has three times as long."""

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Fate(StrEnum):
    """What becomes of a change."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    """The tests do not end."""
    SURVIVED = "survived"
    NOT_TESTED = "not tested"
    """No test runs the line."""


NOTICED: Final = frozenset({Fate.KILLED, Fate.TIMED_OUT})


class Trials:
    """Tries changes, several at a time."""

    def __init__(self, unchanged: Path, copies: Sequence[Path]) -> None:
        self._unchanged = unchanged
        self._free: SimpleQueue[Path] = SimpleQueue()
        for each in copies:
            self._free.put(each)
        self._sound: dict[str, bool] = {}
        """Whether tests that noticed something pass without a change."""
        self._lock = Lock()

    def fate(self, mutant: Mutant, tests: Sequence[str]) -> Fate:
        """Say what becomes of a change; a test that fails without it notices nothing."""
        copy = self._free.get()
        changed = copy / mutant.path
        try:
            changed.write_text(mutant.source, encoding="utf-8")
            left = [each for each in tests if self._sound.get(each, True)]
            while left:
                killers = _failing(left, copy)
                if killers is None:
                    return Fate.TIMED_OUT
                if not killers:
                    return Fate.SURVIVED
                if any(map(self._is_sound, killers)):
                    return Fate.KILLED
                left = [each for each in left if each not in killers]
        finally:
            shutil.copyfile(mutant.path, changed)
            self._free.put(copy)
        return Fate.NOT_TESTED

    def failing(self) -> list[str]:
        """Return the tests that were found to fail without a change."""
        return sorted(name for name, sound in self._sound.items() if not sound)

    def _is_sound(self, test: str) -> bool:
        with self._lock:
            if test not in self._sound:
                self._sound[test] = _failing([test], self._unchanged) == []
            return self._sound[test]


def _failing(tests: Sequence[str], copy: Path) -> list[str] | None:
    """Return the test that fails first, or one of each file of tests that cannot be read; None if there is no end."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, check=False, timeout=3 * SECONDS + 30, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    failed = {name_of(each) for each in _FAILED.findall(ran.stdout)}
    found = {next((test for test in tests if test == each or test.startswith(f"{each}::")), each) for each in failed}
    # Without a name the program itself has ended, which every test notices.
    return sorted(found) if found or ran.returncode == 0 else list(tests[:1])


@contextmanager
def trials(jobs: int) -> Iterator[Trials]:
    """Make copies of the code to change, one for each job, and one that stays as it is."""
    with TemporaryDirectory(prefix="authplane-mutation-") as folder:
        copies = [Path(folder) / str(number) for number in range(jobs + 1)]
        for copy in copies:
            shutil.copytree("src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        yield Trials(copies[0], copies[1:])
