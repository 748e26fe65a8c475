"""Finds a program that Debian packages, for tests with real parties: on PATH, or unpacked below a cache folder.

Nothing is installed, and root is not needed: apt keeps its lists in the cache folder, and the package is only unpacked.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_PATIENCE = 120.0
_PLACES = ("usr/sbin", "usr/bin", "sbin", "bin")


class AbsentError(Exception):
    """The program cannot be had; the message says why."""


def find_program(program: str, package: str) -> Path:
    """Return the path of a program, fetching its package if need be; raises `AbsentError`."""
    here = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if here is not None:
        return Path(here)
    folder = _cache() / package
    if not folder.is_dir():
        _fetch(package, folder)
    for place in _PLACES:
        found = folder / place / program
        if found.is_file():
            return found
    raise AbsentError(f"Debian's package {package} has no program {program}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "authplane" / "debian"


def _fetch(package: str, folder: Path) -> None:
    """Download a package and unpack it whole, or not at all."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise AbsentError(f"{package} is not installed, and this is not Debian")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        lists = work / "lists"
        (lists / "partial").mkdir(parents=True)
        own = [apt, "-q", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={work}"]
        if os.geteuid() == 0:
            own += ["-o", "APT::Sandbox::User=root"]
        _run([*own, "update"], work)
        _run([*own, "download", package], work)
        files = list(work.glob("*.deb"))
        if not files:
            raise AbsentError(f"apt-get found no package {package}")
        _run([dpkg, "-x", str(files[0]), str(work / "whole")], work)
        try:
            (work / "whole").rename(folder)
        except OSError:
            if not folder.is_dir():  # another run may have been first
                raise


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_PATIENCE)
    except (OSError, subprocess.SubprocessError) as error:
        raise AbsentError(f"{' '.join(command[:1])} cannot be used here: {type(error).__name__}") from error


if __name__ == "__main__":
    print(find_program(sys.argv[1], sys.argv[2]))
