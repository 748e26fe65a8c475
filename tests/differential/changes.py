"""Policies, placements and keys that change while requests are sent.

During a change, Envoy and the policy server may answer by old or by new policies, and by each of them with old or with
new keys: issuers say for how long keys may be kept. What all of these deny must not pass. Once the change is in place,
only what came counts.
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
    possible: tuple[Answer, ...]
    """By old and new policies, each with old and new keys."""

    @property
    def removed(self) -> frozenset[str]:
        """The headers that must not reach the server behind, whoever allows the request."""
        found = [each.removed for each in self.possible if each.allowed]
        return frozenset.intersection(*found) if found else frozenset()


async def try_change(made: Running, change: Change, load: Sequence[Case], version: Version, tally: Tally) -> None:
    """Change everything while requests are sent, and send more when the change is in place."""
    before = made.site
    after = replace(before, world=with_probes(change.world, EDITIONS[1]))
    known = dict.fromkeys((FIRST_KEYS, change.keys))
    references = [Reference(before, keys) for keys in known]
    write_policies(after)
    references += [Reference(after, keys) for keys in known]
    new = references[-1]
    write_policies(before)
    shots = [(case, before.shot(case)) for case in load]
    either = [Either(case, shot, tuple(each.answer(shot) for each in references)) for case, shot in shots]
    done = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        rounds = tasks.create_task(_under_load(made, either, done))
        await _apply(made, after, change)
        done.set()
    for answers in rounds.result():
        count_changing(tally, without_probes(before.world), version, either, answers)
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
    removed = [each.removed for each in cases]
    found = []
    while not done.is_set():
        found.append(await made.answers(shots, removed))
    return found


def count_changing(
    tally: Tally, world: World, version: Version, cases: Sequence[Either], answers: Sequence[Answer]
) -> None:
    """Count answers that were given during a change: only whether a request is allowed matters then."""
    for each, got in zip(cases, answers, strict=True):
        tally.changing += 1
        fitting = [answer for answer in each.possible if answer.allowed == got.allowed]
        undecided = not got.allowed and got.status in _NO_DECISION
        if got.changed or not (fitting or undecided):
            wanted = next(iter((*fitting, *each.possible)))
            tally.judge(world, version, Compared(each.case, each.shot, wanted, got))
