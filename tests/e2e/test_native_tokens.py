"""Tokens that Envoy verifies with keys from the control plane: they come, rotate, and may be away."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.envoys import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateway import free_port, service
from tests.support.issuer_server import IssuerServer, issuer_server
from tests.support.mcp_gateway import HURRIED, McpGateway, backend, configuration, deciding, gateway, policy, route
from tests.support.mcp_server import tool_server
from tests.support.minting import Signer, claims, signer

from authplane.app.control import Control, ControlSettings, Rebuilt, Told
from authplane.io.envoy import Envoy, run_envoy
from authplane.io.folder import Folder
from authplane.io.issuers import IssuerOptions
from authplane.io.listen import UnixAddress
from authplane.io.process import Line
from authplane.render.bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.render.dump import json_text
from authplane.xds.messages import Nacked

OLD, NEW = signer("ES256", "old"), signer("RS256", "new")
ALLOWED: Final = 400
"""What the MCP server says to a call without a session; it is not asked about those that are denied."""
REFUSED: Final = 401
AWAY: Final = 503
"""What Envoy says if it has to ask the policy server and nobody is there."""


UPDATES: Final = "listener_manager[.]listener_(added|modified|removed)"


@dataclass
class Site:
    """Everything that runs but the control plane and the policy server."""

    mcp: McpGateway
    issuer: IssuerServer
    envoy: Envoy
    told: list[Told]

    def token(self, by: Signer) -> str:
        now = int(datetime.now(UTC).timestamp())
        return by.token(claims(iss=self.issuer.url, aud="shop", iat=now, exp=now + 600))

    async def call(self, by: Signer, client: httpx2.AsyncClient) -> tuple[str, int]:
        """Call a tool with a token, which must be allowed, and return which connection that was."""
        headers = {"authorization": f"Bearer {self.token(by)}"}
        answer = await self.mcp.post(client, {"name": "add"}, headers=headers)
        assert answer.status_code == ALLOWED
        where: tuple[str, int] = answer.extensions["network_stream"].get_extra_info("client_addr")
        return where

    async def status(self, by: Signer) -> int:
        """Call a tool with a token, on a connection of its own; 0 means that nobody listens."""
        try:
            async with self.mcp.http_client(token=self.token(by)) as client:
                return (await self.mcp.post(client, {"name": "add"})).status_code
        except httpx2.TransportError:
            return 0

    async def answers(self, by: Signer, want: int) -> None:
        async def holds() -> bool:
            return await self.status(by) == want

        await eventually(holds)

    async def stat(self, name: str) -> int:
        reply = await self.envoy.admin(f"/stats?format=json&filter=^{name}$")
        stats: list[dict[str, Any]] = json.loads(reply.body)["stats"]
        return sum(each.get("value", 0) for each in stats)

    @asynccontextmanager
    async def controlled(self) -> AsyncGenerator[None]:
        """Run a control plane, which knows nothing of those before it."""
        settings = ControlSettings(
            address=UnixAddress(path=str(self.mcp.folder.parent / "xds.sock")), issuers=IssuerOptions(schedule=HURRIED)
        )
        control = Control(Folder(self.mcp.folder), self.told.append)
        async with control.serve(settings), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(control.follow(settings))
            yield
            following.cancel()

    def refused(self) -> list[Told]:
        return [each for each in self.told if isinstance(each, Nacked)]


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def site(root: Path, envoy: Version) -> AsyncGenerator[Site]:
    folder = root / "resources"
    folder.mkdir()
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuer_server(root))
        origin = await stack.enter_async_context(tool_server("shop"))
        mcp = McpGateway(folder=folder, http=free_port(), https=free_port(), origins={"shop": origin})
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
        documents = [
            configuration(root, [issuer.url], "  bodyInspection: Native"),
            gateway(mcp.http, mcp.https),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", origin.port),
            route("shop", {"shop": 1}),
            policy(f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"),
        ]
        mcp.write("all.yaml", "\n---\n".join(documents))
        where = ControlPlane(where=UnixSocket(str(root / "xds.sock")))
        bootstrap = json_text(ads_bootstrap(where, node="test"))
        running = run_envoy(bootstrap, sink=_ignore, settings=envoy.settings(drain_seconds=1))
        made = Site(mcp, issuer, await stack.enter_async_context(running), [])
        yield made
        assert made.refused() == []


both = pytest.mark.parametrize("envoy", VERSIONS, ids=lambda version: version.number)


@both
@pytest.mark.requirement("R19")
async def test_other_keys_reach_envoy_and_no_connection_is_closed(tmp_path: Path, envoy: Version) -> None:
    # Nobody decides but Envoy: there is no policy server.
    async with site(tmp_path, envoy) as it, it.controlled():
        await it.answers(OLD, AWAY)
        it.issuer.publish(OLD)
        await it.answers(OLD, ALLOWED)
        updates = await it.stat(UPDATES)
        async with it.mcp.http_client() as client:
            kept = await it.call(OLD, client)
            it.issuer.publish(OLD, NEW)
            await it.answers(NEW, ALLOWED)
            assert await it.call(OLD, client) == kept
            it.issuer.publish(NEW)
            await it.answers(OLD, REFUSED)
            assert await it.call(NEW, client) == kept
        assert await it.stat(UPDATES) == updates


@both
async def test_whose_keys_the_control_plane_cannot_get_is_asked_about(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy) as it:
        it.issuer.publish(OLD)
        async with deciding(it.mcp):
            it.issuer.answers.clear()
            async with it.controlled():
                await it.answers(OLD, ALLOWED)
                assert await it.status(NEW) == REFUSED
            assert [grounds.tool for _, grounds in it.mcp.decided][-2:] == ["add", "add"]


@both
async def test_nobody_is_denied_while_keys_come_nor_while_control_planes_change(tmp_path: Path, envoy: Version) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp) as kept:
        it.issuer.publish(OLD)

        async def ready() -> bool:
            return all(each.ready for each in kept.issuers.standings())

        await eventually(ready)
        keys = it.issuer.answers.pop("/keys")
        seen: set[int] = set()

        async def decides_alone() -> bool:
            asked, known = len(it.mcp.decided), any(isinstance(each, Rebuilt) and each.keys for each in it.told)
            seen.add(await it.status(OLD))
            return known and len(it.mcp.decided) == asked

        async with it.controlled():
            await it.answers(OLD, ALLOWED)
            it.issuer.answers["/keys"] = keys
            await eventually(decides_alone)
        it.told.clear()
        async with it.controlled():
            await eventually(decides_alone)
        assert seen == {ALLOWED}


@both
async def test_envoy_goes_on_without_a_control_plane_and_the_next_one_brings_what_has_changed(
    tmp_path: Path, envoy: Version
) -> None:
    async with site(tmp_path, envoy) as it:
        it.issuer.publish(OLD)
        async with it.controlled():
            await it.answers(OLD, ALLOWED)
        # Envoy keeps what it has.
        assert await it.status(OLD) == ALLOWED
        it.issuer.publish(NEW)
        async with it.controlled():
            await it.answers(NEW, ALLOWED)
            assert await it.status(OLD) == REFUSED
