"""Cases at will: ``python -m tests.differential.run [CASES] [SEED]``, or ``make differential N=... SEED=...``.

The same number makes the same policies and requests. What differs is made as small as it gets, printed, and written
into a folder with all that it takes to see it again.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tests.differential.changes import Change, try_change
from tests.differential.differences import Difference, Tally
from tests.differential.envoy import Compared, Judged, compare, judged, placed, staged
from tests.differential.model import Case, World
from tests.differential.placements import PLACEMENTS, Placement
from tests.differential.policies import SETTINGS, Policies
from tests.differential.probes import without_probes
from tests.differential.reference import Reference
from tests.differential.report import write_report
from tests.differential.requests import Requests
from tests.differential.running import Counts
from tests.differential.shrink import Small, shrunk
from tests.differential.stage import Stage
from tests.support.envoy.releases import VERSIONS, Version

CASES: Final = 50_000
REPORTS: Final = Path(".authplane/differential")
MOST_SHOWN: Final = 5
LEAST_NATIVE: Final = 0.9
"""Of the entries of rules at Backends, in the default placement: otherwise Envoy is asked too little."""
_SETS: Final = 60
_PER_SET: Final = 100
_LATER: Final = 6
"""One of so many cases is sent after a change of policies and placements."""
_ROTATIONS: Final = 6
"""In one of so many batches, issuers rotate their keys as well: to notice that takes up to half a minute."""
LOAD: Final = 100
"""How many cases are sent again and again during a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Cases that run together."""

    world: World
    cases: tuple[Case, ...]
    change: Change | None = None
    """What comes in its place while requests are sent, with the default placement."""
    number: int = 0

    def version(self, placement: Placement) -> Version:
        """Return the Envoy that a placement is tried with: they take turns, so that all meet all in the end."""
        return VERSIONS[(self.number // 2 + self.number // 8 + PLACEMENTS.index(placement)) % len(VERSIONS)]


def batches(cases: int, seed: int, *, sets: int = _SETS, per_set: int = _PER_SET) -> Iterable[Batch]:
    """Make so many cases; settings take turns."""
    for number in range(-(-cases // (sets * per_set))):
        workload_tokens = (number + number // 4) % 2 == 0
        policies, most = Policies(seed + number), min(sets * per_set, cases - number * sets * per_set)
        world = policies.world(sets, SETTINGS[number % len(SETTINGS)], workload_tokens=workload_tokens)
        later = most // _LATER
        held = Requests(seed + number, world).cases(most - later)
        rotates = number % _ROTATIONS == _ROTATIONS - 1
        changed = policies.changed(world)
        more = Requests(seed + number, changed, rotated=rotates).cases(later)
        change = Change(world=changed, cases=tuple(more), rotates=rotates)
        yield Batch(world=world, cases=tuple(held), change=change, number=number)


async def try_batch(batch: Batch, tallies: Mapping[Placement, Tally]) -> None:
    """Run a batch with each placement, one after the other, and count what comes of it."""
    with TemporaryDirectory(prefix="ap-") as root:
        async with staged(batch.world, Path(root)) as stage:
            reference = Reference(stage.site)
            cases = judged(stage.site, batch.cases, reference)
            # The default placement comes last: what changes then stays changed.
            for placement in sorted(tallies, key=lambda each: each.native):
                tally, version = tallies[placement], batch.version(placement)
                if placement.native:
                    entries = reference.entries(version.release)
                    tally.native_entries += entries.native
                    tally.entries += entries.all
                    await _try_placement(stage, cases, version, tally, batch.change)
                else:
                    await _try_placement(stage, cases, version, tally)


async def _try_placement(
    stage: Stage, cases: Sequence[Judged], version: Version, tally: Tally, change: Change | None = None
) -> None:
    async with placed(stage, tally.placement, version) as made:
        before = await made.counts()
        compared = await compare(made, cases)
        tally.native += _native(stage, compared, before, await made.counts())
        tally.add(without_probes(stage.site.world), version, compared)
        if change is not None:
            await try_change(made, change, [each.case for each in cases[:LOAD]], version, tally)


def _native(stage: Stage, compared: Sequence[Compared], before: Counts, after: Counts) -> int:
    """Return how many requests Envoy has decided about by itself: those that no policy speaks of do not count."""
    sets = stage.site.world.sets
    guarded = sum(each.got.allowed and bool(sets[each.case.place].backend or sets[each.case.place].gateway)
                  for each in compared)  # fmt: skip
    return after.refused - before.refused + guarded - (after.granted - before.granted)


async def minimised(found: Difference) -> Difference:
    """Make a difference as small as it gets; one that does not come again stays as it is."""
    last = found

    async def differ(tried: Sequence[Small]) -> list[bool]:
        nonlocal last
        world = replace(found.world, sets=tuple(each.policies for each in tried))
        cases = [Case(place=place, sent=each.sent) for place, each in enumerate(tried)]
        tally = Tally(placement=found.placement)
        with TemporaryDirectory(prefix="ap-") as root:
            async with staged(world, Path(root)) as stage:
                await _try_placement(stage, judged(stage.site, cases), found.version, tally)
        left = {each.case.place: each for each in tally.differences if each.kind == found.kind}
        if left:
            last = left[min(left)]
        return [place in left for place in range(len(tried))]

    await shrunk(Small(policies=found.policies, sent=found.case.sent), differ)
    return replace(last, world=replace(found.world, sets=(last.policies,)), case=Case(place=0, sent=last.case.sent))


async def reported(found: Difference, folder: Path) -> str:
    """Make a difference small, and write it down."""
    small = await minimised(found)
    with TemporaryDirectory(prefix="ap-") as root:
        async with staged(small.world, Path(root)) as stage:
            return write_report(small, stage.site, stage.site.shot(small.case), folder)


async def everything(cases: int, seed: int, console: Console) -> list[Tally]:
    """Try so many cases with each placement."""
    tallies = {placement: Tally(placement=placement) for placement in PLACEMENTS}
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("cases", total=cases)
        shown = 0
        for batch in batches(cases, seed):
            before = {placement: len(tally.differences) for placement, tally in tallies.items()}
            await try_batch(batch, tallies)
            progress.advance(bar, len(batch.cases) + len(batch.change.cases if batch.change else ()))
            if not console.is_terminal:
                console.print(f"{progress.tasks[0].completed:,.0f} cases", highlight=False)
            new = [each for placement, tally in tallies.items() for each in tally.differences[before[placement] :]]
            for found in new[: MOST_SHOWN - shown]:
                shown += 1
                said = await reported(found, REPORTS / f"{seed}-{found.placement.name}-{shown}")
                progress.console.print(said, markup=False, highlight=False, soft_wrap=True)
    return list(tallies.values())


def main(arguments: list[str]) -> int:
    """Read the command line."""
    cases, seed = (*map(int, arguments), *(CASES, time.time_ns() // 1_000_000)[len(arguments) :])
    console = Console()
    tallies = asyncio.run(everything(cases, seed, console))
    for tally in tallies:
        console.print(
            f"{tally.placement.name}: {tally.cases:,} cases over {tally.sets:,} sets of policies from {seed}: "
            f"{tally.allowed:,} allowed, {tally.native:,} decided by Envoy alone, "
            f"{tally.changing:,} sent during changes, "
            f"{sum(tally.known.values()):,} known exceptions, {len(tally.differences)} differ"
        )
    shares = [tally.native_share for tally in tallies if tally.placement.native]
    for share in shares:
        console.print(f"Envoy decides {share:.1%} of the entries at Backends in the default placement")
    return 1 if any(tally.differences for tally in tallies) or min(shares) < LEAST_NATIVE else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
