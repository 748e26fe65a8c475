"""Gateways through the control plane: what changes in the folder reaches Envoy, and the status says so."""

from typing import Any

import httpx2
import pytest
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import AUTH_NAME, Gateway, gateway
from tests.support.gateways.gateway_api import backend, policy
from tests.support.gateways.status_conditions import records
from tests.support.ports import free_port


def configuration(it: Gateway, port: int) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: test}}
spec:
  listeners:
    http: {{address: 127.0.0.1, port: {it._http}}}
    https: {{address: 127.0.0.1, port: {it._https}}}
  gateway: {{address: 127.0.0.1, port: {port}}}
  policyServer:
    address: 127.0.0.1:{it._auth.port}
    serverName: {AUTH_NAME}
    caSecret: {{namespace: default, name: ca}}
  unprotectedBackends: Allow
"""


def edge(port: int) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
  - matches: [{{path: {{value: /mcp}}}}]
    backendRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: echo}}]
"""


async def statuses(it: Gateway) -> dict[str, dict[str, Any]]:
    """Ask for the status as a user would; returns it by kind and name."""
    return {f"{each['kind']}/{each['metadata']['name']}": each["status"] for each in await records(it.folder)}


def states(conditions: list[dict[str, Any]]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in conditions}


@pytest.mark.real
@pytest.mark.parametrize("delta", [False, True], ids=["state-of-the-world", "delta"])
async def test_policies_and_gateways_come_and_go_while_envoy_runs(delta: bool) -> None:
    port, other = free_port(), free_port()
    async with gateway(delta=delta) as it, httpx2.AsyncClient(timeout=5) as client:

        async def answers(where: int, path: str, want: int) -> None:
            async def holds() -> bool:
                try:
                    return (await client.get(f"http://127.0.0.1:{where}{path}")).status_code == want
                except httpx2.TransportError:
                    return want == 0

            await eventually(holds)

        it.write("gateway.yaml", configuration(it, port))
        it.write("mcp.yaml", backend("echo"))
        await answers(port, "/default/echo", 200)
        it.write("policy.yaml", policy("echo"))
        await answers(port, "/default/echo", 401)  # the test server allows paths with "allow"
        await answers(port, "/default/echo/allow", 200)
        # A Gateway takes the place of the one that nobody wrote.
        it.write("edge.yaml", edge(other))
        await answers(other, "/mcp", 401)
        await answers(other, "/mcp/allow", 200)
        await answers(port, "/default/echo", 0)
        told = await statuses(it)
        assert states(told["Backend/echo"]["conditions"]) == {
            "ResolvedRefs": "True",
            "Protected": "True",
            "Programmed": "True",
        }
        [listener] = told["Gateway/edge"]["listeners"]
        assert (listener["attachedRoutes"], states(listener["conditions"])["Programmed"]) == (1, "True")
        [parent] = told["HTTPRoute/web"]["parents"]
        assert states(parent["conditions"]) == {"Accepted": "True", "ResolvedRefs": "True", "Programmed": "True"}
        (it.folder / "policy.yaml").unlink()
        await answers(other, "/mcp", 200)
        # A new policy that cannot be read changes nothing but status.
        it.write(
            "policy.yaml", policy("other").replace("targetRefs: [", "targetRefs: {x: [").replace("}]\n", "}]}\n", 1)
        )
        await it.says("control", "authplane uses nothing from the file until you correct it")
        await answers(other, "/mcp", 200)
        # Hosts of HTTPProxies are not concerned.
        assert await it.status("/allow") == 200
