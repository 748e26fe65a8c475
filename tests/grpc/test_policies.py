"""AccessPolicies for a gRPC server: our control plane, our policy server, and a real server that enforces them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support import certificates
from tests.support.authservers.server_process import Server
from tests.support.eventually import eventually
from tests.support.grpc.shop_servers import KINDS, PATHS, Cart, LoopThread, call, refusal
from tests.support.grpc.tls_channels import secured
from tests.support.grpc.xds_servers import xds_serving
from tests.support.ports import free_port

from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings
from authplane.core.names import Ref
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue
from authplane.grpc import XdsServerCredentials
from authplane.runtime.servers.listen import TcpAddress
from authplane.sources.runtime.read_folder import Folder

pytestmark = pytest.mark.real

WEB = "spiffe://example.org/ns/shop/sa/web"
ADMIN = "spiffe://example.org/ns/shop/sa/admin"
ENGINES = {"threads": "pyvoy", "loop": "grpcio"}
"""Where the policy server decides, each of its engines is asked by servers of one kind."""

BACKEND = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  policyServer: {{address: "127.0.0.1:{asked}"}}
  unprotectedBackends: Allow
  placement: {placement}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: cart, namespace: shop}}
spec:
  type: GRPC
  grpc:
    address: 127.0.0.1
    port: {port}
    tls: {{certificateProvider: server, clientCaProvider: server}}
"""
POLICY = f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: cart, namespace: shop}}
spec:
  targetRefs: [{{kind: Backend, name: cart}}]
  rules:
  - name: web
    source: {{type: SPIFFE, spiffe: "{WEB}"}}
    authorization:
    - {{type: Inline, paths: ["/shop.Cart/unary_*", "/shop.Cart/stream_stream"]}}
  - name: admin
    source: {{type: SPIFFE, spiffe: "{ADMIN}"}}
    authorization:
    - {{type: Inline, paths: ["/shop.Cart/unary_unary"], headers: [{{name: x-reason, value: audit}}]}}
"""
ABOUT_BODIES = POLICY.replace(
    '{type: Inline, paths: ["/shop.Cart/unary_*", "/shop.Cart/stream_stream"]}', "{type: InlineTools, tools: [add]}"
)

TOKENS = POLICY.replace(
    f'{{type: SPIFFE, spiffe: "{WEB}"}}', "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [cart]}}"
)


def workload(*uris: str) -> KeyPair:
    leaf = Leaf(name="workload", usage=Usage.CLIENT, uris=uris)
    return issue(certificates.authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


class Plane:
    """A folder, the control plane that serves it, and the policy server that decides by it."""

    def __init__(self, root: Path, placement: str = "Auto") -> None:
        self.root = root / "resources"
        self.root.mkdir()
        self.files = root
        self.port = free_port()
        self.authserver = Server()
        self.control = Control(Folder(self.root, loosen_after=0), lambda _: None)
        self.loop = LoopThread()
        self.bound = ""
        self.placement = placement
        self.write("backend", self.backend(self.authserver.grpc))
        self.write("policy", POLICY)

    def backend(self, asked: int) -> str:
        return BACKEND.format(asked=asked, port=self.port, placement=self.placement)

    def write(self, name: str, text: str) -> None:
        (self.root / f"{name}.yaml").write_text(text, encoding="utf-8")

    def bootstrap(self) -> dict[str, Any]:
        pair = certificates.server("shop.example")
        files = {"certificate_file": pair.certificate, "private_key_file": pair.key.reveal()}
        files["ca_certificate_file"] = certificates.authority().certificate
        config = {}
        for name, data in files.items():
            path = self.files / f"{name}.pem"
            path.write_bytes(data)
            config[name] = str(path)
        features = ["xds_v3", "trusted_xds_server", "fail_on_data_errors"]
        return {
            "xds_servers": [
                {"server_uri": self.bound, "channel_creds": [{"type": "insecure"}], "server_features": features}
            ],
            "node": {"id": "cart-1"},
            "server_listener_resource_name_template": "grpc/shop/cart/%s",
            "certificate_providers": {"server": {"plugin_name": "file_watcher", "config": config}},
        }

    def programmed(self, *words: str) -> None:
        """Wait until the Backend's condition has one of these reasons."""

        async def holds() -> bool:
            assert self.control.generation is not None
            statuses = self.control.generation.status(self.control.programming)
            [backend] = [each for each in statuses if each.ref == Ref("Backend", "shop", "cart")]
            return any(each.type == "Programmed" and each.reason in words for each in backend.conditions)

        self.loop.run(eventually(holds))

    def accepted(self, status: str, reason: str) -> None:
        """Wait until it stands so with the policy at the Backend; the policy server may have been the quicker one."""

        async def holds() -> bool:
            assert self.control.generation is not None
            statuses = self.control.generation.status(self.control.programming)
            [policy] = [each for each in statuses if each.ref == Ref("AccessPolicy", "shop", "cart")]
            [entry] = policy.ancestors
            return (entry.conditions[0].status, entry.conditions[0].reason) == (status, reason)

        self.loop.run(eventually(holds))

    def decisions(self) -> int:
        return len(self.authserver.decisions)

    def told(self, count: int) -> None:
        """Wait until the policy server has logged so many decisions."""

        async def holds() -> bool:
            return self.decisions() == count

        self.loop.run(eventually(holds))


@contextmanager
def planned(root: Path, engine: str, placement: str = "Auto") -> Iterator[Plane]:
    plane = Plane(root, placement)
    opened = _open(plane, engine)
    try:
        plane.loop.run(opened.__aenter__())
        yield plane
    finally:
        plane.loop.run(opened.__aexit__(None, None, None))
        plane.loop.close()


@asynccontextmanager
async def _open(plane: Plane, engine: str) -> AsyncGenerator[None]:
    settings = ControlSettings(address=TcpAddress(host="127.0.0.1", port=0))
    begun, done = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with (
            plane.authserver.running("policy", str(plane.root), "--engine", engine),
            plane.control.serve(settings) as bound,
            asyncio.TaskGroup() as tasks,
        ):
            plane.bound = str(bound)
            following = tasks.create_task(plane.control.follow(settings))
            begun.set()
            await done.wait()
            following.cancel()

    running = asyncio.ensure_future(run())
    waiting = asyncio.ensure_future(begun.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    yield
    done.set()
    await running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with planned(tmp_path, "grpcio") as made:
        yield made


@pytest.fixture
def asking(tmp_path: Path, stack: str) -> Iterator[Plane]:
    with planned(tmp_path, ENGINES[stack], "CallOut") as made:
        yield made


def code(channel: grpc.Channel, kind: str, **options: Any) -> grpc.StatusCode:
    found: grpc.StatusCode = refusal(channel, kind, **options).code()
    return found


def test_a_server_grants_calls_natively_without_a_check(stack: str, plane: Plane, cart: Cart) -> None:
    denied = grpc.StatusCode.PERMISSION_DENIED
    with xds_serving(stack) as make:
        server = make(cart, f"127.0.0.1:{plane.port}", XdsServerCredentials(None), xds=plane.bootstrap())
        assert server.is_serving()
        plane.programmed("Programmed")
        with secured(plane.port, workload(WEB)) as channel:
            for kind in ("unary_unary", "unary_stream", "stream_stream"):
                assert call(channel, kind, b"a")[0] in ([b"a"], [b"a", b"a"])
            assert code(channel, "stream_unary") is denied
            # Only the policy server can take out what claims to be somebody.
            assert plane.decisions() == 0
            assert call(channel, "unary_unary", b"a", metadata=[("x_spiffe-id", ADMIN), ("y", "z")])[0] == [b"a"]
            plane.told(1)
            assert [cart.header(name) for name in ("x_spiffe-id", "y")] == [[], ["z"]]
        with secured(plane.port, workload(ADMIN)) as channel:
            assert code(channel, "unary_unary") is denied
            assert call(channel, "unary_unary", b"a", metadata=[("x-reason", "audit")])[0] == [b"a"]
            assert call(channel, "unary_unary", b"a", metadata=[("x-reason", "audit")] * 2)[0] == [b"a"]
            plane.told(2)
            assert [code(channel, kind) for kind in KINDS if kind != "unary_unary"] == [denied] * 3
        for names in ((WEB, ADMIN), ("spiffe://example.org/ns/shop/sa/other",), ()):
            with secured(plane.port, workload(*names)) as channel:
                assert [code(channel, kind) for kind in PATHS] == [denied] * 4
        assert plane.decisions() == 2
    assert cart.calls == 6


def test_a_server_that_leaves_decisions_to_the_policy_server_refuses_by_itself(
    stack: str, asking: Plane, cart: Cart
) -> None:
    denied = grpc.StatusCode.PERMISSION_DENIED
    with xds_serving(stack) as make:
        server = make(cart, f"127.0.0.1:{asking.port}", XdsServerCredentials(None), xds=asking.bootstrap())
        assert server.is_serving()
        asking.programmed("Programmed")
        with secured(asking.port, workload(WEB)) as channel:
            for kind in ("unary_unary", "unary_stream", "stream_stream"):
                assert call(channel, kind, b"a")[0] in ([b"a"], [b"a", b"a"])
            asking.told(3)
            assert code(channel, "stream_unary") is denied
        with secured(asking.port, workload(ADMIN)) as channel:
            refused = refusal(channel, "unary_unary")
            assert refused.code() is denied
            asking.told(4)
            # The client can name the decision, and the operator finds it in the log.
            named = asking.authserver.decisions[-1]["id"]
            assert named
            assert refused.details().endswith(f": Access denied. (decision id {named})")
            assert call(channel, "unary_unary", b"a", metadata=[("x-reason", "audit")])[0] == [b"a"]
            asking.told(5)
            assert [code(channel, kind) for kind in KINDS if kind != "unary_unary"] == [denied] * 3
        with secured(asking.port, workload("spiffe://example.org/ns/shop/sa/other")) as channel:
            assert [code(channel, kind) for kind in PATHS] == [denied] * 4
        # Nobody was asked about those who do not come into question; but about a certificate with two names.
        assert asking.decisions() == 5
        with secured(asking.port, workload(WEB, ADMIN)) as channel:
            assert code(channel, "unary_stream") is denied
        asking.told(6)
    assert cart.calls == 4


def test_invalid_policies_and_missing_answers_deny_until_they_are_corrected(
    stack: str, plane: Plane, cart: Cart
) -> None:
    def becomes(name: str, text: str, wanted: grpc.StatusCode) -> None:
        plane.write(name, text)

        async def holds() -> bool:
            return await asyncio.to_thread(outcome, channel) is wanted

        plane.loop.run(eventually(holds))

    elsewhere = plane.backend(free_port())
    with xds_serving(stack) as make:
        server = make(cart, f"127.0.0.1:{plane.port}", XdsServerCredentials(None), xds=plane.bootstrap())
        assert server.is_serving()
        with secured(plane.port, workload(WEB)) as channel:
            assert outcome(channel) is grpc.StatusCode.OK
            becomes("policy", ABOUT_BODIES, grpc.StatusCode.PERMISSION_DENIED)
            plane.accepted("False", "NotKnownToServer")
            becomes("policy", POLICY, grpc.StatusCode.OK)
            plane.accepted("True", "Accepted")
            becomes("policy", TOKENS, grpc.StatusCode.UNAUTHENTICATED)
            becomes("backend", elsewhere, grpc.StatusCode.UNAVAILABLE)


def test_a_server_that_was_open_denies_once_its_backend_has_a_mistake(stack: str, plane: Plane, cart: Cart) -> None:
    """A policy that comes with the mistake would not be enforced if the server went on with its old rules."""
    (plane.root / "policy.yaml").unlink()
    bootstrap = plane.bootstrap()
    bootstrap["xds_servers"][0]["server_features"].remove("fail_on_data_errors")
    with xds_serving(stack) as make:
        make(cart, f"127.0.0.1:{plane.port}", XdsServerCredentials(None), xds=bootstrap)
        with secured(plane.port, workload()) as channel:

            def becomes(wanted: grpc.StatusCode) -> None:
                async def holds() -> bool:
                    return await asyncio.to_thread(outcome, channel) is wanted

                plane.loop.run(eventually(holds))

            becomes(grpc.StatusCode.OK)
            plane.write("policy", POLICY)
            mistaken = plane.backend(plane.authserver.grpc)
            plane.write("backend", mistaken.replace("    port:", "    policyServerCaProvider: server\n    port:"))
            becomes(grpc.StatusCode.PERMISSION_DENIED)


def outcome(channel: grpc.Channel) -> grpc.StatusCode:
    try:
        call(channel, "unary_unary", b"a")
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK
