"""Envoys that get everything from the control plane decide by themselves, each by what its release can do."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route
from tests.support.issuers.minting import ISSUER, claims, signer
from tests.support.mcp.tool_server import tool_server
from tests.support.ports import free_port

from authplane.controlplane.graph.model.programming import TOKENS, Answered
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.serving.generation import Generation, build_generation, differences
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.core.envoy_releases import Release
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.document_versions import Library
from authplane.xds.server.snapshot import Snapshot

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
SOURCE = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
RULES = f"[{{source: {SOURCE}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"
PASSED = 400
"""What the MCP server answers to a call without a session."""


def keys(algorithm: str) -> dict[str, str]:
    return {ISSUER: json.dumps({"keys": [signer(algorithm).jwk()]})}


def token(algorithm: str) -> str:
    now = int(datetime.now(UTC).timestamp())
    return signer(algorithm).token(claims(iss=ISSUER, aud="shop", iat=now, exp=now + 600))


@dataclass
class Told:
    """A control plane without a policy server, and what Envoy was given by it."""

    ads: Ads
    library: Library
    url: str
    generation: Generation | None = None
    editions: list[Release | None] = field(default_factory=list)

    def edition(self, envoy: Release | None) -> Snapshot:
        """Note who asks for which."""
        assert self.generation is not None
        self.editions.append(envoy)
        return self.generation.edition(envoy)

    async def publish(self, key_sets: Mapping[str, str]) -> None:
        """Give Envoy these keys, and wait until it has accepted them."""
        self.generation = build_generation(self.library.current(), self.generation, keys=key_sets)
        assert self.generation.findings == ()
        self.ads.publish(self)

        async def accepted() -> bool:
            return self.ads.programming() == Answered()

        await eventually(accepted)

    async def call(self, http: httpx2.AsyncClient, algorithm: str) -> httpx2.Response:
        """Call a tool with a token that was signed in this way."""
        return await http.post("/shop", json=CALL, headers=HEADERS | {"authorization": f"Bearer {token(algorithm)}"})

    async def allows(self, algorithm: str) -> bool:
        """Ask on a connection of its own: Envoy closes it when it refuses a request with a body."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=5) as http:
            try:
                return (await self.call(http, algorithm)).status_code == PASSED
            except httpx2.ConnectError:  # the listener still warms
                return False


@asynccontextmanager
async def running(root: Path, version: Version, *, delta: bool) -> AsyncGenerator[Told]:
    async def forget(_line: Line) -> None:
        pass

    http, library = free_port(), Library()
    ads = Ads(lambda _: None, patience=600)
    address = UnixAddress(path=str(root / "xds.sock"))
    async with tool_server("shop") as origin, ads.serve(address):
        documents = (
            configuration(root, (), ""),
            gateway(http, free_port()),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", origin.port),
            route("shop", {"shop": 1}),
            policy(RULES),
        )
        library.changed("all.yaml", "\n---\n".join(documents).encode())
        told = Told(ads=ads, library=library, url=f"http://127.0.0.1:{http}")
        bootstrap = json_text(ads_bootstrap(ControlPlane(where=UnixSocket(address.path), delta=delta), node="test"))
        async with run_envoy(bootstrap, sink=forget, settings=version.settings()):
            yield told


def address(answer: httpx2.Response) -> object:
    """Return where the connection of an answer comes from."""
    return answer.extensions["network_stream"].get_extra_info("client_addr")


@pytest.mark.real
@pytest.mark.parametrize("delta", [False, True], ids=["state of the world", "delta"])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.number)
async def test_keys_change_without_closing_a_connection_and_without_a_policy_server(
    tmp_path: Path, version: Version, delta: bool
) -> None:
    async with running(tmp_path, version, delta=delta) as told:
        await told.publish(keys("ES256"))
        assert set(told.editions) == {version.release}

        async def allows_first() -> bool:
            return await told.allows("ES256")

        async def allows_second() -> bool:
            return await told.allows("RS256")

        await eventually(allows_first)
        assert not await allows_second()
        async with httpx2.AsyncClient(base_url=told.url, timeout=5) as http:
            used = [await told.call(http, "ES256")]
            addresses = {address(each) for each in used}
            before = told.generation
            await told.publish(keys("RS256"))
            await eventually(allows_second)
            used.append(await told.call(http, "RS256"))
            addresses |= {address(each) for each in used}
        assert [each.status_code for each in used] == [PASSED, PASSED]
        assert len(addresses) == 1
        assert not await allows_first()
        assert before is not None
        assert told.generation is not None
        assert differences(before.snapshot, told.generation.snapshot) == {"extensions changed": [TOKENS]}
