"""Changes code that decides, one thing at a time, and tells which changes no test notices.

``make mutation`` tries 100 changes at random, ``N=600`` as many as wanted; ``SEED=7`` tries others. Each change is made
in a copy of the code, and the tests that run the changed line have to fail. Which tests run which line is found out
first, which takes some minutes, and is kept in ``.authplane/mutation`` until the code or the tests change.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.reached import Reached, find_reached, module_paths

DECIDES: Final = (
    "src/authplane/cel/**/*.py", "src/authplane/filters/**/*.py", "src/authplane/matching/**/*.py",
    "src/authplane/policy/**/*.py", "src/authplane/graph/authorization*.py", "src/authplane/graph/guards.py",
    "src/authplane/graph/placements.py", "src/authplane/graph/policy_server.py", "src/authplane/graph/protection.py",
    "src/authplane/graph/routes.py", "src/authplane/render/ext_authz.py", "src/authplane/render/filters.py",
    "src/authplane/render/native.py", "src/authplane/render/rules.py",
)  # fmt: skip
"""The modules that decide about requests, or about who decides."""
SECONDS: Final = 60.0
"""How long the tests of one change may take together when nothing is changed; a change has three times as long."""


def main() -> int:
    """Try changes, and print the score and the survivors."""
    options = _options()
    work = Path(".authplane/mutation") / _state()
    work.mkdir(parents=True, exist_ok=True)
    reached = find_reached(work)
    mutants = [
        each for path in module_paths(DECIDES) for each in mutants_of(path, Path(path).read_text(encoding="utf-8"))
    ]
    chosen = random.Random(options.seed).sample(mutants, min(options.n, len(mutants)))  # noqa: S311 (nothing is secret)
    survivors: list[Mutant] = []
    counts: Counter[str] = Counter()
    with _copies(options.jobs) as copies, ThreadPoolExecutor(options.jobs) as pool:
        for number, (mutant, word) in enumerate(pool.map(lambda each: (each, _try(each, reached, copies)), chosen), 1):
            counts[word] += 1
            if word != "killed":
                survivors.append(mutant)
                print(f"{word}: {mutant}", flush=True)
            if not number % 25:
                print(f"{number} of {len(chosen)}: {counts['killed']} killed", flush=True)
    share = 100 * counts["killed"] / len(chosen)
    print(f"\n{counts['killed']} of {len(chosen)} killed, {share:.1f} %; seed {options.seed}")
    for kind, count in Counter(each.kind for each in survivors).most_common():
        print(f"  {count} of {sum(each.kind == kind for each in chosen)} survived: {kind}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("n", nargs="?", type=int, default=100, help="number of changes")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="which changes are chosen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="changes that are tried at a time")
    return parser.parse_args()


def _state() -> str:
    """Name the state of code and tests: with another one, other lines are run."""
    listed = subprocess.run(["git", "ls-files", "-s", "src", "tests"], capture_output=True, check=True).stdout  # noqa: S607 (git is on the path)
    changed = subprocess.run(["git", "diff", "HEAD", "--", "src", "tests"], capture_output=True, check=True).stdout  # noqa: S607 (as above)
    return (
        subprocess.run(  # as git names things
            ["git", "hash-object", "--stdin"],  # noqa: S607 (as above)
            input=listed + changed,
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .strip()[:16]
    )


@contextmanager
def _copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Make copies of the code to change, one for each job."""
    free: SimpleQueue[Path] = SimpleQueue()
    with TemporaryDirectory(prefix="authplane-mutation-") as folder:
        for number in range(count):
            copy = Path(folder) / str(number)
            shutil.copytree("src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
            free.put(copy)
        yield free


def _try(mutant: Mutant, reached: Reached, copies: "SimpleQueue[Path]") -> str:
    """Say what becomes of a change: killed, survived, or not reached by any test."""
    tests = reached.tests(mutant.path, mutant.line, SECONDS)
    if not tests:
        return "not tested"
    copy = copies.get()
    changed = copy / mutant.path
    try:
        changed.write_text(mutant.source, encoding="utf-8")
        return "survived" if _passes(tests, copy) else "killed"
    finally:
        shutil.copyfile(mutant.path, changed)
        copies.put(copy)


def _passes(tests: list[str], copy: Path) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=3 * SECONDS + 30)
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
