"""What the status of a running control plane says of policies, with the proxies that are connected."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.config.core.v3.base_pb2 import BuildVersion, Node
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest
from envoy.type.v3.semantic_version_pb2 import SemanticVersion
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route

from authplane.controlplane.serving.runtime.ads import SERVICE
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings
from authplane.policy.placement.target_routes import UNTOLD
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.served_types import TypeUrl

NATIVE = ("Native", "rule rule-0, entries 0:InlineTools, base_protocol: decided in Envoy")
ASKED = (
    "CallOut",
    f"rule rule-0, entries 0:InlineTools, base_protocol: decided by the policy server, because it {UNTOLD}",
)


def write(root: Path) -> Folder:
    folder = root / "resources"
    folder.mkdir()
    source = "{type: SPIFFE, spiffe: spiffe://example.org/agent}"
    documents = [
        configuration(root, [], ""),
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


def enforced(control: Control) -> list[tuple[str, str]]:
    assert control.generation is not None
    conditions = (
        condition
        for status in control.status(control.generation)
        for ancestor in status.ancestors
        for condition in ancestor.conditions
    )
    return [(each.reason, each.message) for each in conditions if each.type == "Enforced"]


@asynccontextmanager
async def proxy(address: UnixAddress, minor: int) -> AsyncGenerator[None]:
    """Be an Envoy of a release that has asked for its listeners."""
    version = BuildVersion(version=SemanticVersion(major_number=1, minor_number=minor))
    node = Node(id="edge", user_agent_name="envoy", user_agent_build_version=version)
    async with grpc.aio.insecure_channel(f"unix:{address.path}") as channel:
        call: Any = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()
        await call.write(DiscoveryRequest(node=node, type_url=TypeUrl.LISTENER).SerializeToString())
        async with asyncio.timeout(5):
            await call.read()
        yield
        call.cancel()


async def test_policies_are_enforced_as_the_oldest_proxy_can(tmp_path: Path) -> None:
    control = Control(write(tmp_path), lambda _: None)
    address = UnixAddress(path=str(tmp_path / "xds.sock"))
    async with control.serve(ControlSettings(address=address)):
        assert enforced(control) == [NATIVE]
        async with proxy(address, 40):
            assert enforced(control) == [NATIVE]
            async with proxy(address, 35):
                assert enforced(control) == [ASKED]

            async def alone() -> bool:
                return enforced(control) == [NATIVE]

            await eventually(alone)
