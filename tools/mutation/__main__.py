"""Changes code that decides, one thing at a time, and tells which changes no test notices.

``make mutation`` tries 100 changes at random, ``N=600`` as many as wanted; ``SEED=7`` tries others. Each change is made
in a copy of the code, and the tests that run the changed line have to fail. Which tests run which line is found out
first, which takes some minutes, and is kept in ``.authplane/mutation`` until the code changes; files of tests that
change are run again alone. A test that fails without a change, too, kills nothing.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.reached import Reached, find_reached, module_paths
from tools.mutation.trial import NOTICED, SECONDS, Fate, trials

DECIDES: Final = (
    "cel/**/*.py", "dataplane/filters/**/*.py", "matching/**/*.py", "policy/**/*.py",
    "authserver/engine/*.py", "authserver/backends/*.py", "authserver/backends/htpasswd/*.py",
    "authserver/records/*.py",
    "controlplane/graph/httpproxy/*authorization*.py", "controlplane/graph/httpproxy/proxy_routes.py",
    "controlplane/graph/model/route_authorization.py", "controlplane/graph/model/target_placements.py",
    "controlplane/graph/upstreams/policy_connection.py", "controlplane/graph/gateway/protection.py",
    "controlplane/render/ext_authz_filter.py", "controlplane/render/listeners/connection_needs.py",
    "controlplane/render/listeners/filter_chain.py", "controlplane/render/routes/route_messages.py",
    "controlplane/render/native/native_filters.py", "controlplane/render/native/rbac_policies.py",
)  # fmt: skip
"""The modules that decide about requests, or about who decides."""


def main() -> int:
    """Try changes, and print the score and the survivors."""
    options = _options()
    work = Path(".authplane/mutation") / _state()
    work.mkdir(parents=True, exist_ok=True)
    reached = find_reached(work)
    mutants = [
        each for path in module_paths(DECIDES) for each in mutants_of(path, Path(path).read_text(encoding="utf-8"))
    ]
    if options.only:
        mutants = [each for each in mutants if options.only in str(each)]
    chosen = random.Random(options.seed).sample(mutants, min(options.n, len(mutants)))  # noqa: S311 (nothing is secret)
    found: list[tuple[Mutant, Fate]] = []
    with trials(options.jobs) as trial, ThreadPoolExecutor(options.jobs) as pool:
        fates = pool.map(lambda each: trial.fate(each, _tests(each, reached)), chosen)
        for number, (mutant, fate) in enumerate(zip(chosen, fates, strict=True), 1):
            found.append((mutant, fate))
            if fate is not Fate.KILLED:
                print(f"{fate}: {mutant}", flush=True)
            if not number % 25:
                print(f"{number} of {len(chosen)}: {_counted(found)}", flush=True)
        print(f"\n{_counted(found)}; seed {options.seed}")
        print(f"Tests that fail without a change, and so count for nothing: {', '.join(trial.failing()) or 'none'}")
    survivors = [mutant for mutant, fate in found if fate not in NOTICED]
    for kind, count in Counter(each.kind for each in survivors).most_common():
        print(f"  {count} of {sum(each.kind == kind for each in chosen)} survived: {kind}")
    return 0


def _counted(found: Sequence[tuple[Mutant, Fate]]) -> str:
    noticed = sum(fate in NOTICED for _, fate in found)
    late = sum(fate is Fate.TIMED_OUT for _, fate in found)
    return f"{noticed} of {len(found)} killed, {100 * noticed / len(found):.1f} % ({late} by a timeout)"


def _tests(mutant: Mutant, reached: Reached) -> list[str]:
    return reached.tests(mutant.path, mutant.line, SECONDS, imported=mutant.imported)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("n", nargs="?", type=int, default=100, help="number of changes")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="which changes are chosen")
    parser.add_argument("--only", default="", help="part of the description of changes to try")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="changes that are tried at a time")
    return parser.parse_args()


def _state() -> str:
    """Name the state of the code: with another one, other lines are run."""
    state = sha256()
    for path in sorted(Path("src").rglob("*.py")):
        state.update(f"{path}\0".encode() + sha256(path.read_bytes()).digest())
    return state.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
