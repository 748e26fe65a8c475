"""An Envoy and a gRPC server that ask the same control plane: each gets its own, and neither waits for the other."""

from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import Gateway, gateway, proxy
from tests.support.gateways.status_conditions import records
from tests.support.ports import free_port

import authplane.grpc.aio

POLICY = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: cart}
spec: {targetRefs: [{kind: Backend, name: cart}], rules: []}
"""


def cart(port: int) -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: cart}}
spec: {{type: GRPC, grpc: {{address: 127.0.0.1, port: {port}}}}}
"""


async def programmed(it: Gateway) -> dict[str, str]:
    """Ask for the status as a user would; returns why each is programmed or not."""
    found = {}
    for each in await records(it.folder):
        for condition in each["status"].get("conditions", ()):
            if condition["type"] == "Programmed":
                found[f"{each['kind']}/{each['metadata']['name']}"] = condition["reason"]
    return found


async def say(request: bytes, _: object) -> bytes:
    return request


@pytest.mark.real
@pytest.mark.requirement("R30")
@pytest.mark.parametrize("delta", [False, True], ids=["state-of-the-world", "delta"])
async def test_an_envoy_and_a_grpc_server_share_a_control_plane(delta: bool) -> None:
    port = free_port()
    handlers: dict[str, Any] = {"Say": grpc.unary_unary_rpc_method_handler(say)}
    async with gateway(delta=delta) as it, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/shop.Cart/Say")
        it.write("cart.yaml", cart(port))

        async def reasons(backend: str, web: str) -> None:
            async def holds() -> bool:
                found = await programmed(it)
                return found.get("Backend/cart") == backend and found.get("HTTPProxy/web") == web

            await eventually(holds)

        async def denied() -> bool:
            try:
                await call(b"a", timeout=5)
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.PERMISSION_DENIED
            return False

        await reasons("NoServerConnected", "Programmed")
        bootstrap = {
            "xds_servers": [
                {
                    "server_uri": f"unix:{it._xds.path}",
                    "channel_creds": [{"type": "insecure"}],
                    "server_features": ["xds_v3", "trusted_xds_server"],
                }
            ],
            "node": {"id": "cart-1"},
            "server_listener_resource_name_template": "grpc/default/cart/%s",
        }
        server = authplane.grpc.aio.server(
            handlers=[grpc.method_handlers_generic_handler("shop.Cart", handlers)], xds=bootstrap
        )
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        try:
            assert await server.wait_until_serving(5)
            # No policy protects it.
            assert await denied()
            settings = (it.folder / "gateway.yaml").read_text(encoding="utf-8")
            it.write("gateway.yaml", f"{settings.rstrip()}\n  unprotectedBackends: Allow\n")

            async def allowed() -> bool:
                return not await denied()

            await eventually(allowed)
            assert await call(b"a", timeout=5) == b"a"
            await reasons("Programmed", "Programmed")
            # What changes for one of them is no matter of the other.
            it.write("cart.yaml", f"{cart(port)}---{POLICY}")
            it.write(
                "web.yaml", proxy(routes="  - conditions: [{prefix: /more}]\n    services: [{name: echo, port: 80}]")
            )
            await eventually(denied)
            await reasons("Programmed", "Programmed")
        finally:
            await server.stop(0)
        await reasons("NoServerConnected", "Programmed")
        assert it.count("control", "proxy refused") == 0
