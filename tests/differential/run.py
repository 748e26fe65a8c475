"""Cases at will: ``python -m tests.differential.run [CASES] [SEED]``, or ``make differential N=... SEED=...``.

The same number makes the same policies and requests. What differs is made as small as it gets, printed, and written
into a folder with all that it takes to see it again.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tests.differential.differences import Difference, Tally
from tests.differential.envoy import PLACEMENTS, Placement, compare, running
from tests.differential.model import Case, World
from tests.differential.policies import SETTINGS, Policies
from tests.differential.report import write_report
from tests.differential.requests import Requests
from tests.differential.shrink import Small, shrunk

CASES: Final = 50_000
REPORTS: Final = Path(".authplane/differential")
MOST_SHOWN: Final = 5
_SETS: Final = 60
_PER_SET: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Cases that run together."""

    world: World
    cases: tuple[Case, ...]


def batches(cases: int, seed: int, *, sets: int = _SETS, per_set: int = _PER_SET) -> Iterable[Batch]:
    """Make so many cases; settings take turns."""
    for number in range(-(-cases // (sets * per_set))):
        world = Policies(seed + number).world(sets, SETTINGS[number % len(SETTINGS)])
        held = Requests(seed + number, world).cases(min(sets * per_set, cases - number * sets * per_set))
        yield Batch(world=world, cases=tuple(held))


async def try_batch(batch: Batch, placement: Placement, tally: Tally) -> None:
    """Run a batch, and count what comes of it."""
    with TemporaryDirectory(prefix="ap-") as root:
        async with running(batch.world, Path(root), placement) as made:
            tally.add(batch.world, await compare(made, batch.cases))


async def minimised(found: Difference, placement: Placement) -> Difference:
    """Make a difference as small as it gets; one that does not come again stays as it is."""
    last = found

    async def differ(tried: Sequence[Small]) -> list[bool]:
        nonlocal last
        tally = Tally()
        world = World(sets=tuple(each.policies for each in tried), settings=found.world.settings)
        cases = tuple(Case(place=place, sent=each.sent) for place, each in enumerate(tried))
        await try_batch(Batch(world=world, cases=cases), placement, tally)
        left = {each.case.place: each for each in tally.differences if each.kind == found.kind}
        if left:
            last = left[min(left)]
        return [place in left for place in range(len(tried))]

    await shrunk(Small(policies=found.policies, sent=found.case.sent), differ)
    world = World(sets=(last.policies,), settings=found.world.settings)
    return Difference(world=world, case=Case(place=0, sent=last.case.sent), wanted=last.wanted, got=last.got)


async def reported(found: Difference, placement: Placement, folder: Path) -> str:
    """Make a difference small, and write it down."""
    small = await minimised(found, placement)
    with TemporaryDirectory(prefix="ap-") as root:
        async with running(small.world, Path(root), placement) as made:
            return write_report(small, made.site, made.site.shot(small.case), folder)


async def everything(cases: int, seed: int, console: Console) -> Tally:
    """Try so many cases with each placement."""
    tally = Tally()
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        for placement in PLACEMENTS:
            bar = progress.add_task(placement.name, total=cases)
            shown = 0
            for batch in batches(cases, seed):
                before = len(tally.differences)
                await try_batch(batch, placement, tally)
                progress.advance(bar, len(batch.cases))
                for found in tally.differences[before:][: MOST_SHOWN - shown]:
                    shown += 1
                    folder = REPORTS / f"{seed}-{placement.name}-{shown}"
                    said = await reported(found, placement, folder)
                    progress.console.print(said, markup=False, highlight=False, soft_wrap=True)
    return tally


def main(arguments: list[str]) -> int:
    """Read the command line."""
    cases, seed = (*map(int, arguments), *(CASES, time.time_ns() // 1_000_000)[len(arguments) :])
    console = Console()
    tally = asyncio.run(everything(cases, seed, console))
    console.print(
        f"{tally.cases:,} cases over {tally.sets:,} sets of policies from {seed}: {tally.allowed:,} allowed, "
        f"{sum(tally.known.values()):,} known exceptions, {len(tally.differences)} differ"
    )
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
