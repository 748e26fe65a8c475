"""Policies, placements and keys that change while requests are sent.

During a change, Envoy and the policy server may answer by what was there before or by what comes. What both deny must
not pass. Once the change is in place, only what came counts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.differential.differences import Tally
from tests.differential.envoy import Compared, compare, judged
from tests.differential.minting import FIRST_KEYS, NEXT_KEYS
from tests.differential.model import Answer, Case, World
from tests.differential.probes import EDITIONS, ready, settled, with_probes, without_probes
from tests.differential.reference import Reference
from tests.differential.running import Running
from tests.differential.site import Shot, Site
from tests.differential.stage import place, write_policies
from tests.support.envoy.releases import Version

_NO_DECISION = frozenset({0, 503})
"""What is answered when a connection is replaced, or the policy server is not reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What comes in place of a world."""

    world: World
    cases: tuple[Case, ...] = ()
    """Sent once it is in place."""
    rotates: bool = False
    """All issuers replace a key as well."""

    @property
    def keys(self) -> tuple[int, ...]:
        """The keys that issuers publish then."""
        return NEXT_KEYS if self.rotates else FIRST_KEYS


class Either(NamedTuple):
    """A case that is sent during a change."""

    case: Case
    shot: Shot
    old: Answer
    new: Answer


async def try_change(made: Running, change: Change, load: Sequence[Case], version: Version, tally: Tally) -> None:
    """Change everything while requests are sent, and send more when the change is in place."""
    before = made.site
    after = replace(before, world=with_probes(change.world, EDITIONS[1]))
    old = Reference(before)
    write_policies(after)
    new = Reference(after, change.keys)
    write_policies(before)
    shots = [(case, before.shot(case)) for case in load]
    either = [Either(case, shot, old.answer(shot), new.answer(shot)) for case, shot in shots]
    done = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        rounds = tasks.create_task(_under_load(made, either, done))
        await _apply(made, after, change)
        done.set()
    for answers in rounds.result():
        _count(tally, without_probes(before.world), version, either, answers)
    tally.add(change.world, version, await compare(made, judged(after, change.cases, new)))


async def _apply(made: Running, after: Site, change: Change) -> None:
    made.stage.issuers.publish(change.keys)
    made.stage.site = after
    write_policies(after)
    await place(made.stage, made.placement)
    await settled(made, EDITIONS[1], EDITIONS[0])
    await ready(made, change.keys[-1], native=False)


async def _under_load(made: Running, cases: Sequence[Either], done: asyncio.Event) -> list[list[Answer]]:
    shots = [each.shot for each in cases]
    removed = [each.old.removed & each.new.removed for each in cases]
    found = []
    while not done.is_set():
        found.append(await made.answers(shots, removed))
    return found


def _count(tally: Tally, world: World, version: Version, cases: Sequence[Either], answers: Sequence[Answer]) -> None:
    """Count answers that were given during a change: only whether a request is allowed matters then."""
    for each, got in zip(cases, answers, strict=True):
        tally.changing += 1
        fits = got.allowed in {each.old.allowed, each.new.allowed}
        fits |= not got.allowed and got.status in _NO_DECISION
        if not fits or got.changed:
            wanted = each.new if got.allowed == each.new.allowed else each.old
            tally.judge(world, version, Compared(each.case, each.shot, wanted, got))
