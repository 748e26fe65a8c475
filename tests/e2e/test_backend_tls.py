"""Services behind the real Envoy that are reached over TLS, or not at all."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.certificates import ca_secret, server
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.gateway_api import served
from tests.support.ports import free_port

NAMES = {
    "right": "origin.example",
    "misnamed": "other.example",
    "unread": "origin.example, subjectAltNames: [{type: Hostname, hostname: origin.example}]",
}
"""Services that lead to the same origin, and what its certificate must be for."""


@asynccontextmanager
async def origin(folder: Path) -> AsyncGenerator[tuple[int, list[str | None]]]:
    """Serve over TLS as ``origin.example``, and note which names are asked for and how often somebody gets in."""
    pair = server("origin.example")
    (folder / "origin.pem").write_bytes(pair.key.reveal() + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "origin.pem")
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nin")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listening:
        yield listening.sockets[0].getsockname()[1], names


def documents(gateway: int, port: int) -> list[str]:
    rules = "".join(
        f"  - {{matches: [{{path: {{value: /{each}}}}}], backendRefs: [{{name: {each}, port: 80}}]}}\n"
        for each in (*NAMES, "plain")
    )
    made = [
        ca_secret("ca"),
        f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec: {{listeners: [{{name: only, port: {gateway}, protocol: HTTP}}]}}
""",
        f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
{rules}""",
        *(service(each, port) for each in (*NAMES, "plain")),
    ]
    for each, host in NAMES.items():
        made.append(f"""
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {each}}}
spec:
  targetRefs: [{{group: "", kind: Service, name: {each}}}]
  validation: {{caCertificateRefs: [{{group: "", kind: Secret, name: ca}}], hostname: {host}}}
""")
    return made


@pytest.mark.real
async def test_envoy_reaches_only_who_can_prove_to_be_the_service(tmp_path: Path) -> None:
    gateway = free_port()
    async with origin(tmp_path) as (port, names):
        async with served(documents(gateway, port), tmp_path, origins=(), decides=False, port=gateway) as it:
            found = {each: await it.client.get(f"{it.url}/{each}") for each in (*NAMES, "plain")}
        got = {each: (answer.status_code, answer.text == "in") for each, answer in found.items()}
    assert got == {
        "right": (200, True),
        "misnamed": (503, False),
        # Its policy cannot be read: nobody knows how to verify it.
        "unread": (500, False),
        # No policy is for it, and the origin does not speak without TLS.
        "plain": (503, False),
    }
    assert set(names) == {"origin.example", "other.example"}
