"""All that is around Envoy: control plane, authorization service, issuers and the server behind."""

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.differential.issuers import Issuers, serving_issuers
from tests.differential.model import World
from tests.differential.placements import Placement
from tests.differential.site import Listeners, Site, gateways_of, text_of
from tests.differential.wire import Origin, origin_server
from tests.support.authservers.asked_services import asked
from tests.support.authservers.external_answers import RedTeam
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, LineSink, run_process
from authplane.runtime.servers.listen import UnixAddress

PATIENCE: Final = START_LIMIT


@dataclass(slots=True)
class Stage:
    """All that is around Envoy: it stays while placements come and go."""

    site: Site
    origin: Origin
    control: Path
    """The folder of the control plane, which each placement writes anew."""
    xds: UnixAddress
    issuers: Issuers
    lines: list[str] = field(default_factory=list)
    """What programs have written."""
    sent: int = 0
    lanes: int = 0


@asynccontextmanager
async def stage_for(world: World, root: Path) -> AsyncGenerator[Stage]:
    """Set up everything but Envoy for a world, probes included, while the block runs."""
    async with AsyncExitStack() as stack:
        issuers = await stack.enter_async_context(serving_issuers(root))
        origin = await stack.enter_async_context(origin_server())
        site = Site(
            world=world,
            root=root,
            origin=origin.port,
            external=await stack.enter_async_context(asked(RedTeam())),
            issuers=issuers.urls,
            gateways=tuple(Listeners(free_port(), free_port()) for _ in gateways_of(world)),
            proxies=Listeners(free_port(), free_port()),
            now=datetime.now(UTC),
        )
        site.folder.mkdir()
        write_policies(site)
        stage = Stage(site, origin, root / "control", UnixAddress(path=str(root / "xds.sock")), issuers)
        stage.control.mkdir()
        policy = UnixAddress(path=str(root / "policy.sock"))
        options = ("--address", str(policy), "--metrics-address", "", "--decision-log", "", "--loosen-after", "0")
        await _program(stage, stack, "authserver", "policy", str(site.folder), *options)
        served = ("--address", str(stage.xds), "--metrics-address", "", "--loosen-after", "0")
        await _program(stage, stack, "control", str(stage.control), *served)
        await listening(policy)
        await listening(stage.xds)
        yield stage


async def place(stage: Stage, placement: Placement) -> None:
    """Write what the control plane is to serve, and wait until it does."""
    before, path = len(stage.lines), stage.control / "all.yaml"
    text = text_of(stage.site.documents(placement.settings))
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    _write(path, text)

    async def rebuilt() -> bool:
        return any('"event": "rebuilt configuration"' in line for line in stage.lines[before:])

    await eventually(rebuilt, limit=PATIENCE)


def write_policies(site: Site) -> None:
    """Write what the authorization service and the reference read."""
    _write(site.folder / "all.yaml", text_of(site.documents()))


def _write(path: Path, text: str) -> None:
    """Write a file as careful programs do: whole, then in place."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def sink_of(stage: Stage) -> LineSink:
    async def sink(line: Line) -> None:
        stage.lines.append(line.text)

    return sink


async def _program(stage: Stage, stack: AsyncExitStack, *arguments: str) -> None:
    argv = [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"]
    await stack.enter_async_context(run_process(argv, sink=sink_of(stage)))
