"""As many cases at random as wanted: ``python -m tests.oracles.fuzz [CASES] [SEED]``, or ``make fuzz N=... SEED=...``.

Each kind of cases runs in a process of its own, so that the end of one is noticed: the engine of expressions is not
written in Python. What differs is printed, made as small as it gets, with the line that tries it again:
``python -m tests.oracles.fuzz --again KIND NUMBER``.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from tests.oracles.cases import KINDS

CASES: Final = 1_000_000
SHARES: Final = {
    "trees": 0.5, "composites": 0.2, "expressions": 0.1, "hostile": 0.08, "policies": 0.1, "spoiled": 0.02,
    "messages": 1.0,
}  # fmt: skip
"""How many cases each kind has, of the number that is asked for: those that take longer have fewer."""
SLOWEST: Final = 5.0
"""Seconds of the processor that one number may take."""
MOST_SHOWN: Final = 5
"""Of each kind; then it stops."""
ROOT: Final = Path(__file__).parents[2]
WORK: Final = (sys.executable, "-m", "tests.oracles.fuzz", "--work")
_REPORT: Final = 0.5


def difference(kind: str, number: int) -> str:
    """Try one number; what it raises, and that it takes too long, is a difference as well."""
    begun = time.process_time()
    try:
        said = KINDS[kind].differs(number)
    except Exception:  # noqa: BLE001 (whatever it is, it is what is looked for)
        said = traceback.format_exc()
    took = time.process_time() - begun
    return said or (f"took {took:.1f} s" if took > SLOWEST else "")


# --- One process


def work(kind: str, first: int, last: int, place: Path) -> None:
    """Try numbers and tell the parent; the one that is tried stands in a file, in case nobody can tell any more."""
    told = time.monotonic()
    with place.open("wb", buffering=0) as current:
        for number in range(first, last):
            os.pwrite(current.fileno(), f"{number:20}".encode(), 0)
            said = difference(kind, number)
            now = time.monotonic()
            if said or now - told > _REPORT or number == last - 1:
                told = now
                print(json.dumps({"number": number, "said": said}), flush=True)  # noqa: T201 (the parent reads it)


# --- All of them


@dataclass(slots=True)
class Tally:
    """What has been tried."""

    done: dict[str, int] = field(default_factory=dict)
    """Cases by kind."""
    differing: list[str] = field(default_factory=list)


class Run:
    """Tries cases of all kinds, as many at a time as there are processors."""

    def __init__(self, seed: int, folder: Path, progress: Progress, command: tuple[str, ...] = WORK) -> None:
        self.tally = Tally()
        self._command = command
        self._seed = seed
        self._folder = folder
        self._progress = progress
        self._processors = asyncio.Semaphore(os.cpu_count() or 1)

    async def everything(self, cases: int) -> None:
        """Try so many cases in all."""
        async with asyncio.TaskGroup() as tasks:
            for kind, share in SHARES.items():
                numbers = max(1, round(cases * share / KINDS[kind].cases))
                bar = self._progress.add_task(kind, total=numbers * KINDS[kind].cases)
                tasks.create_task(self._kind(kind, numbers, bar))

    async def _kind(self, kind: str, numbers: int, bar: TaskID) -> None:
        first, last = self._seed, self._seed + numbers
        shown = 0
        while first < last and shown < MOST_SHOWN:
            async with self._processors:
                first, said = await self._until_one_differs(kind, first, last, bar)
            if said:
                shown += 1
                self.tally.differing.append(kind)
                self._progress.console.print(_shown(kind, first - 1, said), markup=False, highlight=False)

    async def _until_one_differs(self, kind: str, first: int, last: int, bar: TaskID) -> tuple[int, str]:
        """Return the number to go on with, and what is wrong with the one before it."""
        place = self._folder / kind
        order = (*self._command, kind, str(first), str(last), str(place))
        child = await asyncio.create_subprocess_exec(*order, stdout=asyncio.subprocess.PIPE, limit=2**24, cwd=ROOT)
        assert child.stdout is not None
        begun = first
        try:
            async for line in child.stdout:
                report = json.loads(line)
                self._count(kind, bar, report["number"] + 1 - begun)
                begun = report["number"] + 1
                if report["said"]:
                    return begun, report["said"]
            ended = await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if ended == 0:
            return last, ""
        dead = int(place.read_text() or first)
        self._count(kind, bar, dead + 1 - begun)
        return dead + 1, f"the process ended with {ended}"

    def _count(self, kind: str, bar: TaskID, numbers: int) -> None:
        cases = numbers * KINDS[kind].cases
        self.tally.done[kind] = self.tally.done.get(kind, 0) + cases
        self._progress.advance(bar, cases)


def _shown(kind: str, number: int, said: str) -> str:
    return f"{kind} {number} differs:\n{said}\nAgain: python -m tests.oracles.fuzz --again {kind} {number}\n"


def fuzz(cases: int, seed: int, console: Console) -> Tally:
    """Try so many cases, beginning with the number that the seed is; return what came of it."""
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
    with TemporaryDirectory() as folder, Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        run = Run(seed, Path(folder), progress)
        asyncio.run(run.everything(cases))
    return run.tally


def main(arguments: list[str]) -> int:
    """Read the command line."""
    match arguments:
        case ["--work", kind, first, last, place]:
            work(kind, int(first), int(last), Path(place))
            return 0
        case ["--again", kind, number]:
            said = difference(kind, int(number))
            Console().print(said or "nothing differs", markup=False, highlight=False)
            return 1 if said else 0
        case _:
            cases, seed = (*map(int, arguments), *(CASES, time.time_ns() // 1_000_000)[len(arguments) :])
    console = Console()
    tally = fuzz(cases, seed, console)
    console.print(f"{sum(tally.done.values()):,} cases from {seed}: {len(tally.differing)} differ")
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
