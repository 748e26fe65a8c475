"""Create the virtual environment from the lock file, with one clear sentence when that is impossible."""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path


def main() -> int:
    """Make the environment that is named first from the lock file that is named second."""
    target, lock = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < (3, 11):
        return fail(f"authplane needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}")
    if importlib.util.find_spec("ensurepip") is None:
        return fail("this Python cannot create virtual environments; install Debian's python3-venv package")
    print(f"creating {target} (once; about a minute)", flush=True)
    venv.create(target, clear=True, with_pip=True)
    python = str(target / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for step in (["--require-hashes", "-r", lock], ["--no-deps", "--no-build-isolation", "-e", "."]):
        finished = subprocess.run([*pip, *step], check=False)
        if finished.returncode:
            return fail("the packages could not be installed; pip's message above says why")
    return 0


def fail(sentence: str) -> int:
    """Say why and stop."""
    print(f"make: {sentence}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
