"""The control plane and the keys of issuers whose tokens Envoy verifies."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route
from tests.support.issuers.issuer_server import IssuerServer, issuer_server, response
from tests.support.issuers.minting import Signer, signer

from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.policy.identity.tokens.key_lifetime import Bounds
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.served_types import TypeUrl

OLD, NEW = signer("ES256", "old"), signer("ES256", "new")
HURRIED: Final = Schedule(between=0.05, first_retry=0.02, bounds=Bounds(shortest=0.05, usual=0.05, longest=0.05))
CALL_OUT: Final = "  placement: CallOut"
TOKENS: Final = "authplane/tokens"


@dataclass
class World:
    """A control plane that follows a folder and its issuers."""

    root: Path
    issuer: IssuerServer
    told: list[Rebuilt] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    control: Control = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.root / "resources"
        self.folder.mkdir()
        self.control = Control(Folder(self.folder, loosen_after=0), self.tell)

    def tell(self, event: Told) -> None:
        if isinstance(event, Rebuilt):
            self.told.append(event)
            self.news.set()

    def write(self, settings: str = "", tool: str = "add") -> None:
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{self.issuer.url}', audiences: [shop]}}}}"
        rules = f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [{tool}]}}]}}]"
        documents = [
            configuration(self.root, [self.issuer.url], settings),
            gateway(10080, 10443),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", 10081),
            route("shop", {"shop": 1}),
            policy(rules),
        ]
        draft = self.root / "draft.yaml"
        draft.write_text("\n---\n".join(documents), encoding="utf-8")
        draft.replace(self.folder / "all.yaml")

    @asynccontextmanager
    async def running(self, schedule: Schedule = HURRIED) -> AsyncGenerator[None]:
        address = UnixAddress(path=str(self.root / "xds.sock"))
        settings = ControlSettings(address=address, issuers=IssuerOptions(schedule=schedule))
        async with self.control.serve(settings), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.control.follow(settings))
            yield
            following.cancel()

    async def until(self, holds: Callable[["World"], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds(self):
                self.news.clear()
                await self.news.wait()

    def kids(self) -> list[str]:
        """Return the keys that proxies have."""
        assert self.control.generation is not None
        texts = self.control.generation.built.graph.keys.values()
        return [key["kid"] for text in texts for key in json.loads(text)["keys"]]

    def extensions(self) -> list[str]:
        assert self.control.generation is not None
        return list(self.control.generation.snapshot.resources(TypeUrl.EXTENSION))

    @property
    def last(self) -> Rebuilt:
        return self.told[-1]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with issuer_server(tmp_path) as running:
        yield World(tmp_path, running)


async def with_keys(world: World, *signers: Signer) -> None:
    wanted = [each.kid for each in signers]
    await world.until(lambda it: it.kids() == wanted)


@pytest.mark.slow
async def test_tokens_are_the_servers_until_keys_come_and_then_envoys(world: World) -> None:
    world.write()
    async with world.running():
        await world.issuer.until(lambda it: len(it.asked) > 2)
        assert (world.kids(), world.extensions(), [each.first for each in world.told]) == ([], [TOKENS], [True])
        world.issuer.publish(OLD)
        await with_keys(world, OLD)
        assert (world.extensions(), world.last.keys, world.last.first) == ([TOKENS], True, False)


@pytest.mark.slow
async def test_other_keys_change_the_filter_that_verifies_tokens_and_nothing_else(world: World) -> None:
    world.issuer.publish(OLD)
    world.write()
    async with world.running():
        await with_keys(world, OLD)
        for signers in ((NEW, OLD), (NEW,)):
            world.issuer.publish(*signers)
            await with_keys(world, *signers)
            assert world.last.difference == {"extensions changed": [TOKENS]}
            assert world.last.keys


@pytest.mark.slow
async def test_keys_that_are_too_old_leave_tokens_to_the_server_again(world: World) -> None:
    world.issuer.publish(OLD)
    world.write()
    async with world.running(replace(HURRIED, max_stale=0.5)):
        await with_keys(world, OLD)
        world.issuer.answers["/keys"] = response(b"", status="503 Service Unavailable")
        await with_keys(world)
        assert (world.extensions(), world.last.keys) == ([TOKENS], True)


@pytest.mark.slow
async def test_an_edit_keeps_the_keys_and_is_taken_while_an_issuer_cannot_be_reached(world: World) -> None:
    world.write()
    async with world.running():
        world.write(tool="wipe")
        await world.until(lambda it: len(it.told) == 2)
        assert world.kids() == []
        world.issuer.publish(OLD)
        await with_keys(world, OLD)
        count = len(world.told)
        world.write(tool="add")
        await world.until(lambda it: len(it.told) > count)
        assert (world.kids(), world.last.keys) == (["old"], False)
        assert "extensions changed" not in world.last.difference


@pytest.mark.slow
async def test_envoy_gets_keys_only_while_it_may_verify_tokens_with_them(world: World) -> None:
    world.issuer.publish(OLD)
    world.write(CALL_OUT)
    async with world.running():
        await world.issuer.until(lambda it: "/keys" in it.asked)
        world.write(CALL_OUT, tool="wipe")
        await world.until(lambda it: len(it.told) == 2)
        assert world.extensions() == []
        world.write()
        await with_keys(world, OLD)
        world.write(CALL_OUT)
        await with_keys(world)
        assert world.extensions() == []
