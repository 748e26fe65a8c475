"""Trees at random against the model, as many as wanted: ``python -m tests.matching.fuzz CASES [SEED]``."""

import sys
import time
from collections.abc import Callable
from functools import partial

from google.protobuf import text_format
from tests.matching.trees import PACKAGES, Trees, kinds, verdict
from tests.matching.unparse import unparsed

from authplane.base.problems import Problems
from authplane.matching.explain import explain
from authplane.matching.inputs import HasHeaders
from authplane.matching.search import as_search
from authplane.matching.tree import find, find_all
from authplane.matching.tree_wire import parse_tree

_REQUESTS = 20
"""For each tree."""
_EVERY = 5.0
"""Seconds between reports."""


def fuzz(cases: int, seed: int, report: Callable[[str], None]) -> int:
    """Compare so many searches; return how many differ, each of which is reported."""
    # Half of the trees keep matching now and then; only the others can be made ready for many subjects.
    makers, done, differing = (Trees(seed), Trees(seed + 1, keep_matching=False)), 0, 0
    begun = told = time.monotonic()
    while done < cases:
        number = done // _REQUESTS
        made = makers[number % 2]
        message = made.tree(PACKAGES[number // 2 % 2].Matcher(), depth=5)
        problems = Problems()
        tree = parse_tree(message, kinds(), problems)
        if tree is None:
            differing += 1
            report(f"refused: {', '.join(map(str, problems))}\n{text_format.MessageToString(message)}")
            done += _REQUESTS
            continue
        if parse_tree(unparsed(tree, PACKAGES[0].Matcher()), kinds(), Problems()) != tree:
            differing += 1
            report(f"written and read again it is another:\n{text_format.MessageToString(message)}")
        search: Callable[[HasHeaders], str | None] = partial(find, tree)
        if number % 2:
            ready = as_search(tree)
            search = ready
        for _ in range(_REQUESTS):
            request = made.request()
            want = verdict(message, request)
            found, told_of = find_all(tree, request), explain(tree, request)
            ways = {(found.actions, found.matched), (told_of.noted, told_of.root.matched)}
            if ways != {want} or search(request) != (want.actions[-1] if want.matched else None):
                differing += 1
                report(f"{found} and {told_of}, not {want}: {request}\n{text_format.MessageToString(message)}")
        done += _REQUESTS
        if time.monotonic() - told > _EVERY:
            told = time.monotonic()
            report(f"{done:,} of {cases:,} cases, {done / (told - begun):,.0f} a second, {differing} differ")
    report(f"{done:,} cases with the seed {seed}: {differing} differ")
    return differing


def main() -> int:
    """Read the command line."""
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    return 1 if fuzz(cases, seed, lambda line: print(line, flush=True)) else 0  # noqa: T201 (a program)


if __name__ == "__main__":
    sys.exit(main())
