"""One run: load all the time, one fault after another, and the bars at the end."""

import asyncio
import resource
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rich.console import Console
from tests.soak.decisions import compare
from tests.soak.faults import FAULTS, Fault, run_fault
from tests.soak.judge import judge
from tests.soak.load import Load
from tests.soak.memory import Memory
from tests.soak.report import Outcome
from tests.soak.running_site import World, world
from tests.soak.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, and what goes wrong."""

    seconds: float | None
    """None is as long as it takes for each fault to come once."""
    seed: int
    faults: Sequence[Fault] = FAULTS
    warm_up: float = 20.0
    pause: float = 3.0
    """Seconds between faults, in which everything has to be well."""
    edits: bool = True
    """Whether policies are edited meanwhile."""

    def order(self, random: Random) -> Iterator[Fault]:
        """Return faults, each once before any comes again."""
        if self.seconds is None:
            yield from self.faults
            return
        fitting = [each for each in self.faults if each.least * 60 <= self.seconds]
        while True:
            yield from random.sample(fitting, len(fitting))


async def soak(plan: Plan, console: Console) -> Outcome:
    """Run it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with TemporaryDirectory(prefix="authplane-soak-") as folder:
        async with world(Path(folder)) as made:
            return await _run(made, plan, console)


async def _run(made: World, plan: Plan, console: Console) -> Outcome:
    random = Random(plan.seed)  # noqa: S311 (the same seed makes the same run)
    load, memory = Load(made), Memory(made)
    begun = asyncio.get_running_loop().time()

    def say(line: str) -> None:
        console.print(f"{asyncio.get_running_loop().time() - begun:7.1f} s  {line}", highlight=False)

    stage = Stage(made, load, random, say)
    async with load.running(random), _beside(memory.watch()):
        async with _beside(stage.keep_editing() if plan.edits else _nothing()):
            await asyncio.sleep(plan.warm_up)
            await _faults(stage, plan, inf if plan.seconds is None else begun + plan.seconds)
        await asyncio.sleep(plan.pause)
    # The log is written by then, whatever waits in it.
    await asyncio.sleep(1)
    announced = stage.announced
    return Outcome(
        begun=begun,
        verdict=judge(load.answers, announced, made.origin.reached),
        windows=announced.windows,
        measured=stage.measured,
        growths=memory.growths(),
        logged=compare(made.log.parent, load.answers, announced.windows),
        programs=made.programs,
        skipped=sorted(stage.skipped),
        edits=len(announced.edits),
    )


async def _faults(stage: Stage, plan: Plan, until: float) -> None:
    passed_over = 0
    for fault in plan.order(stage.random):
        left = until - stage.now()
        if left <= 0 or passed_over > len(plan.faults):
            await asyncio.sleep(max(left, 0))
            return
        if fault.takes + fault.recovery > left:
            passed_over += 1
            continue
        passed_over = 0
        stage.say(f"{fault.name}  ({len(stage.load.answers)} answers so far)")
        await run_fault(stage, fault)
        await asyncio.sleep(plan.pause)


async def _nothing() -> None:
    pass


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    """Do something for as long as the block runs; what it raises is raised here."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
