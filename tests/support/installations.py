"""Our wheel, and virtual environments into which pip installs it with what it needs, as users do.

Versions are those of the lock file, so that pip finds most of them in its cache.
"""

import json
import os
import re
import resource
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_LIMIT: Final = 600
"""Seconds for pip: a machine without a cache fetches 200 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A virtual environment with authplane."""

    root: Path

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.root / "bin" / "python")

    @property
    def authplane(self) -> str:
        """The command."""
        return str(self.root / "bin" / "authplane")

    def run(self, *argv: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a program there, away from our sources."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_"))}
        return subprocess.run(
            argv,
            cwd=self.root,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def packages(self) -> set[str]:
        """Return the names of all that is installed."""
        listed = self.run(self.python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
        return {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in json.loads(listed.stdout)}

    def size(self) -> int:
        """Return the bytes of all packages but pip and what Python itself brings."""
        [packages] = self.root.glob("lib/python*/site-packages")
        tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
        files = (path for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(path.stat().st_size for path in files if not path.relative_to(packages).parts[0].startswith(tools))

    def processor_time(self, *argv: str, rounds: int = 5) -> float:
        """Return the processor time of a program in seconds, children included; the best of some rounds."""
        self.run(*argv)  # what is compiled once is compiled now
        return min(_spent(self, argv) for _ in range(rounds))


def build(folder: Path, *targets: str) -> None:
    """Build the wheel or the source distribution into a folder."""
    wanted = [argument for target in targets for argument in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *wanted],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )


def install(folder: Path, wheel: Path, extras: Sequence[str] = ()) -> Installation:
    """Make a virtual environment with the wheel, its extras, and whatever pip says that they need."""
    venv.create(folder, with_pip=True)
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins), encoding="utf-8")
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "-c", str(constraints), wanted], check=False, capture_output=True, text=True, timeout=_LIMIT
    )
    assert done.returncode == 0, done.stderr
    return Installation(root=folder)


def is_cut_off() -> bool:
    """Tell whether this machine has no network but itself, so that pip cannot fetch anything."""
    routes = Path("/proc/net/route")
    return routes.exists() and len(routes.read_text(encoding="ascii").splitlines()) <= 1


def _spent(installation: Installation, argv: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    installation.run(*argv)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
