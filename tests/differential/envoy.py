"""A site as it is run: control plane, authorization service and Envoy, each a process of its own."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.differential.model import Answer, Case, World
from tests.differential.placements import CALL_OUT, Placement
from tests.differential.probes import ready, with_probes
from tests.differential.reference import Reference
from tests.differential.running import Running
from tests.differential.site import Shot, Site
from tests.differential.stage import PATIENCE, Stage, place, sink_of, stage_for
from tests.support.envoy.releases import INSTALLED, Version
from tests.support.eventually import listening

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.runtime.envoy_process import run_envoy
from authplane.runtime.servers.listen import TcpAddress

_UNAVAILABLE: Final = 503


class Judged(NamedTuple):
    """A case as it is sent, and what the reference says to it."""

    case: Case
    shot: Shot
    wanted: Answer


class Compared(NamedTuple):
    """What the reference says to a case, and what Envoy did."""

    case: Case
    shot: Shot
    wanted: Answer
    got: Answer


@asynccontextmanager
async def staged(world: World, root: Path) -> AsyncGenerator[Stage]:
    """Set up everything but Envoy for a world, while the block runs."""
    async with stage_for(with_probes(world), root) as stage:
        yield stage


@asynccontextmanager
async def placed(stage: Stage, placement: Placement, version: Version = INSTALLED) -> AsyncGenerator[Running]:
    """Run Envoy while the block runs; what it judges by is in place when the block begins."""
    await place(stage, placement)
    where = UnixSocket(stage.xds.path)
    bootstrap = json_text(ads_bootstrap(ControlPlane(where=where, delta=True), node="differential"))
    async with run_envoy(bootstrap, sink=sink_of(stage), settings=version.settings()) as envoy:
        await envoy.ready(limit=PATIENCE)
        proxies = [stage.site.proxies.plain] if any(each.proxy for each in stage.site.world.sets) else []
        for port in (*(port for ports in stage.site.gateways for port in ports), *proxies):
            await listening(TcpAddress(host="127.0.0.1", port=port))
        made = Running(stage, envoy, placement)
        await ready(made)
        yield made


@asynccontextmanager
async def running(
    world: World, root: Path, placement: Placement = CALL_OUT, version: Version = INSTALLED
) -> AsyncGenerator[Running]:
    """Run a world with one Envoy while the block runs."""
    async with staged(world, root) as stage, placed(stage, placement, version) as made:
        yield made


def judged(site: Site, cases: Sequence[Case], reference: Reference | None = None) -> list[Judged]:
    """Return with each case what the reference says to it."""
    judge = reference or Reference(site)
    return [Judged(case, shot, judge.answer(shot)) for case, shot in ((case, site.shot(case)) for case in cases)]


async def compare(made: Running, cases: Sequence[Judged]) -> list[Compared]:
    """Return with each case what Envoy does."""
    got = await made.answers([each.shot for each in cases], [each.wanted.removed for each in cases])
    for index, (each, answer) in enumerate(zip(cases, got, strict=True)):
        # On a busy machine somebody may be asked in vain. That is no decision, so one asks again, and nothing else.
        if answer.status == _UNAVAILABLE != each.wanted.status and not answer.allowed:
            [got[index]] = await made.answers([each.shot], [each.wanted.removed])
    return [Compared(*each, answer) for each, answer in zip(cases, got, strict=True)]
