"""A Gateway before a tool server for whoever has a token: Envoy, issuers, and control planes that come and go."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.envoy.releases import Version
from tests.support.eventually import START_LIMIT, eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import HURRIED, McpGateway, backend, configuration, gateway, policy, route
from tests.support.issuers.issuer_server import IssuerServer, issuer_server
from tests.support.issuers.minting import Signer, claims
from tests.support.mcp.tool_server import tool_server
from tests.support.ports import free_port

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Told
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.runtime.child_processes import Child, Line, run_process
from authplane.runtime.envoy_process import Envoy, run_envoy
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.stream_messages import Nacked

ALLOWED: Final = 400
"""What the MCP server says to a call without a session; it is not asked about those that are denied."""
REFUSED: Final = 401
AWAY: Final = 503
"""What Envoy says if it has to ask the policy server and nobody is there."""

LISTENERS: Final = "listener_manager[.](listener_(added|modified|removed)|lds[.]version)"
"""What Envoy counts of changes of its listeners, and which version of them it has."""

PATIENCE: Final = START_LIMIT
"""Seconds for what other programs do: an Envoy that has found no control plane waits longer each time."""

Place: TypeAlias = tuple[str, int]


@dataclass
class Steady:
    """A client that asks all the time on one connection, as long as nobody closes it."""

    answers: Counter[tuple[int, Place]] = field(default_factory=Counter)
    order: list[int] = field(default_factory=list)
    """Each status that differs from the one before."""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def statuses(self) -> set[int]:
        return {status for status, _ in self.answers}

    @property
    def connections(self) -> int:
        return len({place for _, place in self.answers})

    async def take(self, answer: httpx2.Response) -> None:
        where: Place = answer.extensions["network_stream"].get_extra_info("client_addr")
        async with self.news:
            self.answers[answer.status_code, where] += 1
            if self.order[-1:] != [answer.status_code]:
                self.order.append(answer.status_code)
            self.news.notify_all()

    async def more(self, count: int = 10) -> None:
        """Wait for as many answers to requests that are sent from now on."""
        wanted = self.answers.total() + count + 1
        async with asyncio.timeout(PATIENCE), self.news:
            await self.news.wait_for(lambda: self.answers.total() >= wanted)


@dataclass
class Site:
    """Everything that runs but the control plane and the policy server."""

    mcp: McpGateway
    issuers: tuple[IssuerServer, ...]
    envoy: Envoy
    told: list[Told] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What control planes in processes of their own say that is wrong."""

    @property
    def issuer(self) -> IssuerServer:
        return self.issuers[0]

    def token(self, by: Signer, issuer: IssuerServer | None = None) -> str:
        now = int(datetime.now(UTC).timestamp())
        return by.token(claims(iss=(issuer or self.issuer).url, aud="shop", iat=now, exp=now + 600))

    async def call(self, by: Signer, client: httpx2.AsyncClient) -> Place:
        """Call a tool with a token, which must be allowed, and return which connection that was."""
        headers = {"authorization": f"Bearer {self.token(by)}"}
        answer = await self.mcp.post(client, {"name": "add"}, headers=headers)
        assert answer.status_code == ALLOWED
        where: Place = answer.extensions["network_stream"].get_extra_info("client_addr")
        return where

    @asynccontextmanager
    async def asking(self, token: str) -> AsyncGenerator[Steady]:
        """Ask all the time while the block runs."""
        steady, stop = Steady(), asyncio.Event()

        async def ask(client: httpx2.AsyncClient) -> None:
            while not stop.is_set():
                await steady.take(await self.mcp.post(client, {"name": "add"}))

        limits = httpx2.Limits(max_connections=1)
        async with self.mcp.http_client(token=token, limits=limits) as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(client))
            try:
                yield steady
            finally:
                stop.set()

    async def status(self, by: Signer, issuer: IssuerServer | None = None) -> int:
        """Call a tool with a token, on a connection of its own; 0 means that nobody listens."""
        try:
            async with self.mcp.http_client(token=self.token(by, issuer)) as client:
                return (await self.mcp.post(client, {"name": "add"})).status_code
        except httpx2.TransportError:
            return 0

    async def answers(self, by: Signer, want: int, issuer: IssuerServer | None = None) -> None:
        async def holds() -> bool:
            return await self.status(by, issuer) == want

        await eventually(holds, limit=PATIENCE)

    async def alone(self, steady: Steady) -> None:
        """Wait until Envoy answers a client without asking anybody."""

        async def holds() -> bool:
            asked = len(self.mcp.decided)
            await steady.more()
            return len(self.mcp.decided) == asked

        await eventually(holds, limit=PATIENCE)

    async def asks(self, steady: Steady) -> None:
        """Wait until Envoy asks the policy server about everything that a client sends."""

        async def holds() -> bool:
            asked, answered = len(self.mcp.decided), steady.answers.total()
            await steady.more()
            return len(self.mcp.decided) - asked >= steady.answers.total() - answered - 1

        await eventually(holds, limit=PATIENCE)

    async def stat(self, name: str) -> int:
        reply = await self.envoy.admin(f"/stats?format=json&filter=^{name}$")
        stats: list[dict[str, Any]] = json.loads(reply.body)["stats"]
        return sum(each.get("value", 0) for each in stats)

    def settings(self, schedule: Schedule = HURRIED) -> ControlSettings:
        address = UnixAddress(path=str(self.mcp.folder.parent / "xds.sock"))
        return ControlSettings(address=address, issuers=IssuerOptions(schedule=schedule))

    @asynccontextmanager
    async def controlled(self, schedule: Schedule = HURRIED) -> AsyncGenerator[None]:
        """Run a control plane, which knows nothing of those before it."""
        settings = self.settings(schedule)
        control = Control(Folder(self.mcp.folder, loosen_after=0), self.told.append)
        async with control.serve(settings), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(control.follow(settings))
            yield
            following.cancel()

    @asynccontextmanager
    async def controlled_apart(self) -> AsyncGenerator[Child]:
        """Run a control plane in a process of its own."""

        async def sink(line: Line) -> None:
            if '"level": "error"' in line.text:
                self.errors.append(line.text)

        address = str(self.settings().address)
        argv = [sys.executable, "-m", "authplane", "control", str(self.mcp.folder), "--address", address]
        argv += ["--metrics-address", "", "--log-format", "json", "--loosen-after", "0"]
        async with run_process(argv, sink=sink) as child:
            yield child

    def write(self, *sources: IssuerServer) -> None:
        """Let whoever has a token of one of these issuers call the tool."""
        named = (f"{{type: OIDC, oidc: {{issuerUrl: '{each.url}', audiences: [shop]}}}}" for each in sources)
        rules = (f"{{source: {each}, authorization: [{{type: InlineTools, tools: [add]}}]}}" for each in named)
        self.mcp.write("policy.yaml", policy(f"[{', '.join(rules)}]"))

    def refused(self) -> list[object]:
        return [*self.errors, *(each for each in self.told if isinstance(each, Nacked))]


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def site(root: Path, envoy: Version, *, issuers: int = 1) -> AsyncGenerator[Site]:
    """Run Envoy, a tool server and issuers, of which the first counts."""
    folder = root / "resources"
    folder.mkdir()
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(each) for each in _issuers(root, issuers)]
        origin = await stack.enter_async_context(tool_server("shop"))
        mcp = McpGateway(folder=folder, http=free_port(), https=free_port(), origins={"shop": origin})
        documents = [
            configuration(root, [each.url for each in running], ""),
            gateway(mcp.http, mcp.https),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", origin.port),
            route("shop", {"shop": 1}),
        ]
        mcp.write("all.yaml", "\n---\n".join(documents))
        where = ControlPlane(where=UnixSocket(str(root / "xds.sock")))
        bootstrap = json_text(ads_bootstrap(where, node="test"))
        proxy = run_envoy(bootstrap, sink=_ignore, settings=envoy.settings(drain_seconds=1))
        made = Site(mcp, tuple(running), await stack.enter_async_context(proxy))
        made.write(made.issuer)
        yield made
        assert made.refused() == []


def _issuers(root: Path, count: int) -> Iterable[AbstractAsyncContextManager[IssuerServer]]:
    for number in range(count):
        folder = root / f"issuer-{number}"
        folder.mkdir()
        yield issuer_server(folder)
