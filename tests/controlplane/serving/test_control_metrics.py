"""What the control plane tells Prometheus."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import BuildVersion, Node
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from envoy.type.v3.semantic_version_pb2 import SemanticVersion
from google.rpc.status_pb2 import Status
from prometheus_client.parser import text_string_to_metric_families
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route
from tests.support.issuers.issuer_server import IssuerServer, issuer_server
from tests.support.issuers.minting import signer

from authplane.controlplane.serving.runtime.ads import SERVICE
from authplane.controlplane.serving.runtime.ads_stream import Connected
from authplane.controlplane.serving.runtime.control_counts import ControlCounts
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.stream_messages import Acked, Nacked


def documents(root: Path, issuer: IssuerServer) -> str:
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    return "\n---\n".join((
        configuration(root, [issuer.url], ""),
        gateway(10080, 10443),
        tls_secret("tls", server("localhost")),
        ca_secret("ca"),
        backend("shop"),
        service("shop", 10081),
        route("shop", {"shop": 1}),
        policy(f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"),
    ))  # fmt: skip


class Scene:
    """A control plane with its folder, and what it says to Prometheus."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "resources"
        self.folder.mkdir()
        self.address = UnixAddress(path=str(root / "xds.sock"))
        self.control = Control(Folder(self.folder, loosen_after=3600), lambda _: None)

    def value(self, name: str, **labels: str) -> float | None:
        families = text_string_to_metric_families(ControlMetrics(self.control).text().decode())
        found = [
            sample.value
            for family in families
            for sample in family.samples
            if (sample.name, sample.labels) == (f"authplane_control_{name}", labels)
        ]
        return found[0] if found else None

    async def becomes(self, want: float | None, name: str, **labels: str) -> None:
        async def holds() -> bool:
            return self.value(name, **labels) == want

        await eventually(holds)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        options = IssuerOptions(allow_private_networks=True)
        settings = ControlSettings(address=self.address, issuers=options, wait_for_keys=30)
        async with self.control.serve(settings), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.control.follow(settings))
            yield
            following.cancel()

    @asynccontextmanager
    async def client(
        self, node: Node, *, names: tuple[str, ...] = (), error: str = "", reads: bool = True
    ) -> AsyncGenerator[None]:
        """Ask for listeners, accept what comes or refuse it with an error, and stay."""
        async with grpc.aio.insecure_channel(f"unix:{self.address.path}") as channel:
            call: Any = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()
            asked = DiscoveryRequest(node=node, type_url=TypeUrl.LISTENER, resource_names=names)
            await call.write(asked.SerializeToString())
            if reads:
                async with asyncio.timeout(30):
                    answer = DiscoveryResponse.FromString(await call.read())
                asked.response_nonce = answer.nonce
                if error:
                    asked.error_detail.CopyFrom(Status(code=13, message=error))
                else:
                    asked.version_info = answer.version_info
                await call.write(asked.SerializeToString())
            yield
            call.cancel()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with issuer_server(tmp_path) as issuer:
        issuer.publish(signer("ES256", "k1"))
        made = Scene(tmp_path)
        (made.folder / "all.yaml").write_text(documents(tmp_path, issuer), encoding="utf-8")
        yield made


def envoy(minor: int) -> Node:
    version = BuildVersion(version=SemanticVersion(major_number=1, minor_number=minor))
    return Node(id=f"edge-{minor}", user_agent_name="envoy", user_agent_build_version=version)


async def test_a_control_plane_is_ready_while_it_serves_a_configuration(scene: Scene) -> None:
    assert scene.control.obstacle() == "no configuration is served yet"
    assert scene.value("generations_total", result="ok") == 0
    async with scene.serving():
        assert scene.control.obstacle() == ""
        assert scene.value("generations_total", result="ok") == 1
        # The first configuration is no change.
        assert scene.value("push_seconds_count") == 0
    assert scene.control.obstacle() == "no configuration is served yet"


async def test_clients_count_by_release_and_by_what_they_answer(scene: Scene) -> None:
    async with scene.serving():
        other = scene.client(Node(id="odd", user_agent_name="curious"))
        program = scene.client(Node(id="server", user_agent_name="gRPC C-core"), names=("nothing",), reads=False)
        async with scene.client(envoy(40)), scene.client(envoy(99), error="ingress_http is bad"), other, program:
            await scene.becomes(2, "proxies", release="1.40")
            await scene.becomes(1, "proxies", release="other")
            await scene.becomes(1, "proxies", release="grpc")
            await scene.becomes(2, "acks_total", type="listener")
            await scene.becomes(1, "nacks_total", type="listener")
            assert scene.value("rejected_resources") != 0
            assert scene.value("nacks_total", type="cluster") == 0
        await scene.becomes(None, "proxies", release="1.40")
        await scene.becomes(0, "rejected_resources")
        assert scene.value("nacks_total", type="listener") == 1


@pytest.mark.slow
async def test_documents_and_changes_count(scene: Scene) -> None:
    async with scene.serving():
        file = scene.folder / "all.yaml"
        good = file.read_text(encoding="utf-8")
        assert scene.value("documents_with_errors") == 0
        file.write_text(good.replace("port: 10080", "port: ten"), encoding="utf-8")
        await scene.becomes(1, "documents_with_errors")
        assert scene.value("last_good_resources") == 1
        assert scene.value("changes_waiting") == 0
        # Another tool is granted: a change that loosens.
        file.write_text(good.replace("tools: [add]", "tools: [add, wipe]"), encoding="utf-8")
        await scene.becomes(1, "changes_waiting")
        assert scene.value("documents_with_errors") == 0
        file.write_text(good.replace("value: /shop", "value: /other"), encoding="utf-8")
        await scene.becomes(0, "changes_waiting")
        changes = scene.value("push_seconds_count")
        assert changes is not None
        assert changes >= 3
        assert scene.value("generations_total", result="ok") == changes + 1
        assert scene.value("push_seconds_bucket", le="+Inf") == changes
        # A burst of changes is over after a tenth of a second without one.
        assert (scene.value("push_seconds_sum") or 0) >= 0.1 * changes
        assert scene.value("generations_total", result="failed") == 0


async def test_issuers_and_the_policy_server_are_told(scene: Scene) -> None:
    async with scene.serving():
        assert scene.control.view.issuers is not None
        (issuer,) = (each.issuer for each in scene.control.view.issuers.standings())
        assert scene.value("issuer_ready", issuer=issuer) == 1
        age = scene.value("issuer_keys_age_seconds", issuer=issuer)
        assert age is not None
        assert 0 <= age < 60
        assert scene.value("issuer_events_total", issuer=issuer, event="KeysLoaded") == 1
        address = f"unix:{scene.folder.parent}/policy.sock"
        await scene.becomes(0, "policy_server_accepts", address=address)


def test_times_are_counted_in_buckets_with_their_bounds() -> None:
    counts = ControlCounts()
    for seconds in (0.1, 0.11, 3.0, 99.0):
        counts.pushed(seconds)
    assert counts.push_buckets == [
        ("0.1", 1), ("0.25", 2), ("0.5", 2), ("1.0", 2), ("2.5", 2), ("5.0", 3), ("10.0", 3), ("30.0", 3), ("+Inf", 4),
    ]  # fmt: skip
    assert counts.push_seconds == pytest.approx(102.21)


def test_answers_count_by_type() -> None:
    counts = ControlCounts()
    counts.heard(Acked(node="a", type_url=TypeUrl.CLUSTER, version="1"))
    counts.heard(Nacked(node="a", type_url=TypeUrl.ROUTE, version="1", names=(), message="no"))
    counts.heard(Connected(node="a", peer="b"))
    assert (dict(counts.acks), dict(counts.nacks)) == ({TypeUrl.CLUSTER: 1}, {TypeUrl.ROUTE: 1})
