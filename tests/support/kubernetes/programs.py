"""A program that runs beside the tests, writes a log, and ends at the latest with them."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LAST: Final = 3000
"""How many characters of the log a failure quotes."""


class Program:
    """A program that can be started, killed and started again."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._argv = argv
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; the kernel ends it with the thread that starts it, which is the one that runs the tests."""
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*bound, *self._argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """End it at once: nothing of it is needed later."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check_running(self) -> None:
        """Fail with the end of its log if it has ended by itself."""
        assert self._process is not None, f"{self._argv[0]} is not started"
        status = self._process.poll()
        assert status is None, f"{self._argv[0]} ended with {status}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LAST:]
