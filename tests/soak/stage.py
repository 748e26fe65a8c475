"""What faults act on: the world, the load, and what is announced."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from tests.soak.documents import NAMESPACES, policy, policy_file
from tests.soak.judge import Announced, Edit, Window
from tests.soak.load import Load
from tests.soak.programs import PATIENCE
from tests.soak.requests import SELLING, Kind
from tests.soak.running_site import World
from tests.support.eventually import eventually

TIGHTENED: Final = 3.0
"""Seconds until an edit that takes a right away is in force everywhere."""
LOOSENED: Final = 2.0 + 3.0
"""One that gives a right waits until its file has been unchanged for two seconds."""


class Measured(NamedTuple):
    """Something that has a limit."""

    name: str
    seconds: float
    limit: float


@dataclass
class Stage:
    """One run."""

    world: World
    load: Load
    random: Random
    say: Callable[[str], None]
    announced: Announced = field(default_factory=Announced)
    measured: list[Measured] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    editing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever writes into the folder."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @asynccontextmanager
    async def window(self, name: str, spoils: frozenset[Kind], *, loses_lines: bool) -> AsyncGenerator[Window]:
        """Announce a fault; whoever opens the window says until when it lasts."""
        made = Window(name, spoils, self.now(), loses_lines=loses_lines)
        self.announced.windows.append(made)
        try:
            yield made
        finally:
            made.ended = min(made.ended, self.now())

    def write_policy(self, target: str, *, sells: bool) -> Edit:
        """Edit a policy. Until somebody settles the edit, both answers are right."""
        edit = Edit(target, sells, self.now())
        self.announced.edits.append(edit)
        self.world.write(policy_file(target), policy(target, self.world.issuer.url, sells=sells))
        return edit

    async def edit(self, target: str, *, sells: bool) -> None:
        """Edit a policy, and wait until the edit has to be in force."""
        if self.announced.sells(target) is sells:
            return
        edit = self.write_policy(target, sells=sells)
        edit.settled = edit.written + (LOOSENED if sells else TIGHTENED)
        await asyncio.sleep(edit.settled - self.now())

    async def until_denied(self, target: str) -> float:
        """Ask until a policy no longer allows it, and return when that was."""

        async def denied() -> bool:
            return (await self.load.send(SELLING[target])).status == 403

        await eventually(denied, limit=PATIENCE)
        return self.now()

    async def keep_editing(self) -> None:
        """Edit policies now and then, until this task is cancelled."""
        while True:
            await asyncio.sleep(self.random.uniform(1, 5))
            async with self.editing:
                target = self.random.choice(sorted(NAMESPACES))
                await self.edit(target, sells=not self.announced.sells(target))
