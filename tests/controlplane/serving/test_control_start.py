"""What the control plane serves first: it waits for the keys of issuers, and not for long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import HURRIED, backend, configuration, gateway, policy, route
from tests.support.issuers.issuer_server import METADATA, IssuerServer, issuer_server
from tests.support.issuers.minting import signer

from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder

KEY = signer("ES256", "k1")
FOR_EVER: Final = 3600.0


@dataclass
class World:
    """A folder with a policy for whoever has a token of the issuer."""

    root: Path
    issuer: IssuerServer
    told: list[Rebuilt] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, settings: str) -> Folder:
        folder = self.root / "resources"
        folder.mkdir()
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{self.issuer.url}', audiences: [shop]}}}}"
        documents = [
            configuration(self.root, [self.issuer.url], settings),
            gateway(10080, 10443),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", 10081),
            route("shop", {"shop": 1}),
            policy(f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"),
        ]
        (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
        return Folder(folder, loosen_after=0)

    def tell(self, event: Told) -> None:
        if isinstance(event, Rebuilt):
            self.told.append(event)
            self.news.set()

    @asynccontextmanager
    async def serving(self, wait: float, settings: str = "") -> AsyncGenerator[Control]:
        control = Control(self.write(settings), self.tell)
        address = UnixAddress(path=str(self.root / "xds.sock"))
        made = ControlSettings(address=address, issuers=IssuerOptions(schedule=HURRIED), wait_for_keys=wait)
        async with asyncio.timeout(5), control.serve(made), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(control.follow(made))
            yield control
            following.cancel()

    def first(self) -> list[tuple[bool, bool]]:
        return [(each.first, each.keys) for each in self.told]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with issuer_server(tmp_path) as running:
        yield World(tmp_path, running)


def issuers_with_keys(control: Control) -> list[str]:
    assert control.generation is not None
    return list(control.generation.built.graph.keys)


async def test_the_first_generation_has_the_keys_that_can_be_had(world: World) -> None:
    world.issuer.publish(KEY)
    async with world.serving(FOR_EVER) as control:
        assert (issuers_with_keys(control), world.first()) == ([world.issuer.url], [(True, False)])


async def test_an_issuer_that_says_no_keeps_nobody_waiting_and_its_keys_follow(world: World) -> None:
    async with world.serving(FOR_EVER) as control:
        assert (issuers_with_keys(control), world.first()) == ([], [(True, False)])
        world.news.clear()
        world.issuer.publish(KEY)
        await world.news.wait()
        assert (issuers_with_keys(control), world.first()) == ([world.issuer.url], [(True, False), (False, True)])


async def test_an_issuer_that_does_not_answer_is_waited_for_once_and_its_keys_follow(world: World) -> None:
    answered = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        answer = world.issuer.answers[METADATA]
        assert isinstance(answer, bytes)
        writer.write(answer)

    world.issuer.answers[METADATA] = late
    async with world.serving(0.05) as control:
        assert (issuers_with_keys(control), world.first()) == ([], [(True, False)])
        world.news.clear()
        world.issuer.publish(KEY)
        answered.set()
        await world.news.wait()
        assert (issuers_with_keys(control), world.first()) == ([world.issuer.url], [(True, False), (False, True)])


async def test_nobody_is_waited_for_whose_tokens_are_the_servers(world: World) -> None:
    async with world.serving(FOR_EVER, "  placement: CallOut"):
        assert (world.issuer.asked, world.first()) == ([], [(True, False)])
