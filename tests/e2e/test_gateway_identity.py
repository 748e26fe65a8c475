"""Identity headers of clients behind a Gateway that has policies."""

import json
from pathlib import Path

import pytest
from tests.support.gateways.gateway_api import backend, policy, served
from tests.support.ports import free_port

from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS

HOSTS = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  listeners: [{{name: only, port: {port}, protocol: HTTP}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [web.example]
  rules:
  - matches: [{{path: {{value: /mcp}}}}]
    backendRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: weather}}]
  - backendRefs: [{{name: plain, port: 80}}]
  - matches: [{{path: {{value: /both}}}}]
    backendRefs: [{{name: plain, port: 80}}, {{name: plain, port: 80}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: open}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [open.example]
  rules: [{{backendRefs: [{{name: plain, port: 80}}]}}]
"""


@pytest.mark.real
@pytest.mark.requirement("E01")
async def test_routes_without_a_policy_on_a_host_with_one_strip_identity_headers_too(tmp_path: Path) -> None:
    port = free_port()
    documents = [HOSTS.format(port=port), backend("weather"), policy("weather")]
    names = [name for name in IDENTITY_HEADERS if name != "x-forwarded-client-cert"]  # Envoy itself removes that one
    async with served(documents, tmp_path, origins=("weather", "plain"), port=port) as it:
        for host, path, passed in (
            ("web.example", "/", []),
            ("web.example", "/both", []),
            ("open.example", "/", names),
        ):
            headers = {"host": host, **dict.fromkeys(names, "spoofed")}
            answer = await it.client.get(f"{it.url}{path}", headers=headers)
            seen = {name for name, _ in json.loads(answer.text)["headers"]}
            assert (host, path, [name for name in names if name in seen]) == (host, path, passed)
