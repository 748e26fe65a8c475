"""Control plane, policy server and Envoy, each at an address of its own, started as the page on operations says."""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from tests.support.certificates import authority
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.gateways.contour_gateway import service
from tests.support.mcp.mcp_checks import call_body
from tests.support.pages import ROOT, blocks, read
from tests.support.ports import free_port

from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, issue
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import Envoy, EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

PATIENCE: Final = START_LIMIT
CONTROL, POLICY, EDGE, NOBODY = "127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"
MACHINES: Final = {"control.internal:": f"{CONTROL}:", "policy.internal:": f"{POLICY}:"}
PAGE: Final = ROOT / "docs" / "how-to" / "run-on-three-machines.md"
LEAVES: Final = {"control": Usage.SERVER, "policy": Usage.SERVER, "edge": Usage.CLIENT}


def section() -> tuple[str, list[list[str]]]:
    """Return the document and the commands of the page."""
    own = read(PAGE).split("## Three machines\n")[1].split("\n## ")[0]
    shown = [block for block in blocks(PAGE) if block.text in own]
    (document,) = (block.text for block in shown if block.language == "yaml")
    lines = [line for block in shown if block.language == "sh" for line in block.text.replace("\\\n", "").splitlines()]
    return document, [shlex.split(line) for line in lines]


def resources(port: int, origin: int) -> str:
    return f"""
{service("tools", origin)}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: shop}}
spec: {{type: MCP, mcp: {{serviceName: tools, port: 80}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: authplane
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: shop}}
spec:
  parentRefs: [{{name: edge}}]
  rules: [{{backendRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}}]}}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: shop}}
spec:
  targetRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}}]
  rules: [{{name: adding, authorization: [{{type: InlineTools, tools: [add]}}]}}]
"""


@dataclass
class Site:
    """Three programs and what they wrote."""

    root: Path
    port: int
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def gateway(self) -> Path:
        return self.root / "gateway"

    def local(self, text: str) -> str:
        """Put the addresses and the folder of the test in the place of the page's."""
        for name, address in MACHINES.items():
            text = text.replace(name, address)
        return text.replace("/etc/authplane", str(self.root))

    def configure(self, document: str) -> None:
        # Where Envoy listens, and that the server decides, is not what the page is about.
        more = f"  gateway: {{address: {EDGE}}}\n  placement: CallOut\n"
        self.write("configuration.yaml", self.local(document) + more)

    def write(self, name: str, text: str) -> None:
        draft = self.root / f"{name}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.gateway / name)

    def certify(self, name: str) -> None:
        """Give a machine a certificate, and move it into its place."""
        leaf = Leaf(name=name, usage=LEAVES[name], dns=(f"{name}.internal",))
        pair = issue(authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))
        for suffix, content in (("key", pair.key.reveal()), ("crt", pair.certificate)):
            draft = self.root / f"{name}.{suffix}.new"
            draft.write_bytes(content)
            draft.chmod(0o600)
            draft.replace(self.root / f"{name}.{suffix}")

    @asynccontextmanager
    async def program(self, name: str, arguments: list[str]) -> AsyncGenerator[None]:
        said = self.lines.setdefault(name, [])

        async def sink(line: Line) -> None:
            said.append(line.text)

        argv = [sys.executable, "-m", "authplane", *map(self.local, arguments), "--log-format", "json"]
        environment = dict(os.environ) | {"XDG_RUNTIME_DIR": str(self.root)}
        async with run_process(argv, sink=sink, grace=5, environment=environment):
            yield

    async def says(self, name: str, words: str) -> None:
        async def holds() -> bool:
            return any(words in line for line in self.lines[name])

        await eventually(holds, limit=PATIENCE)

    async def ask(self, *arguments: str) -> tuple[int, Any]:
        """Run a command that prints JSON."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "authplane", *arguments,
            stdout=asyncio.subprocess.PIPE, env=dict(os.environ) | {"XDG_RUNTIME_DIR": str(self.root)},
        )  # fmt: skip
        printed, _ = await child.communicate()
        return child.returncode or 0, json.loads(printed)

    async def becomes(self, *wanted: str) -> None:
        """Wait until the status says so: the control plane tries the policy server every 10 seconds."""

        async def holds() -> bool:
            return await self.condition() == wanted

        await eventually(holds)

    async def condition(self) -> tuple[str, str]:
        """Return what the status of the configuration says of the policy server."""
        _, records = await self.ask("status", str(self.gateway), "-o", "json")
        (found,) = (
            each
            for record in records
            if record["kind"] == "AuthplaneConfiguration"
            for each in record["status"]["conditions"]
            if each["type"] == "PolicyServerReady"
        )
        return found["status"], found["reason"]

    async def call(self, tool: str) -> int:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=20) as client:
            url = f"http://{EDGE}:{self.port}/mcp"
            return (await client.post(url, content=call_body(tool), headers=headers)).status_code

    async def answers(self, tool: str, want: int) -> None:
        async def holds() -> bool:
            return await self.call(tool) == want

        await eventually(holds, limit=PATIENCE)


@asynccontextmanager
async def running(site: Site, commands: list[list[str]], stack: AsyncExitStack) -> AsyncGenerator[Envoy]:
    control, policy, bootstrap, _ = commands
    metrics = ["--metrics-address", ""]
    await stack.enter_async_context(site.program("policy", [*policy[1:], *metrics, "--decision-log", ""]))
    await stack.enter_async_context(site.program("control", [*control[1:], *metrics]))
    await site.says("policy", "authorization service listening")
    await site.says("control", "control plane listening")
    code, start = await site.ask(*map(site.local, bootstrap[1 : bootstrap.index(">")]))
    assert code == 0

    async def sink(_: Line) -> None: ...

    async with run_envoy(json.dumps(start), sink=sink, settings=EnvoySettings(concurrency=1)) as envoy:
        await envoy.ready(limit=START_LIMIT)
        await listening(TcpAddress(host=EDGE, port=site.port))
        yield envoy


async def shown(envoy: Envoy) -> set[str]:
    """Return the serial numbers of the certificates that Envoy has."""
    reply = await envoy.admin("/certs")
    return set(re.findall(r'"serial_number":\s*"(\w+)"', reply.body))


@pytest.mark.real
async def test_the_three_machines_of_the_page_trust_each_other_and_say_so_when_they_do_not(tmp_path: Path) -> None:
    document, commands = section()
    site = Site(tmp_path, free_port())
    site.gateway.mkdir()
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    for name in LEAVES:
        site.certify(name)
    async with AsyncExitStack() as stack:
        echo = await stack.enter_async_context(serve_echo(TcpAddress(host="127.0.0.1", port=0)))
        assert isinstance(echo, TcpAddress)
        site.write("shop.yaml", resources(site.port, echo.port))
        without = re.sub(r"    client\w+: .*\n", "", document)
        assert without != document
        site.configure(without)
        envoy = await stack.enter_async_context(running(site, commands, stack))

        # Envoy shows no certificate, and everybody says so.
        assert await site.call("add") == 503
        await site.says("control", "cannot connect to the policy server")
        await site.says("policy", "TLS handshake failed")
        await site.becomes("False", "HandshakeFailed")
        code, rows = await site.ask("doctor", str(site.gateway), "-o", "json")
        (row,) = (row for row in rows if row["probe"] == "policy-server")
        assert (code, row["outcome"]) == (1, "finding")
        assert "clientCertFile" in row["remedy"], row

        # With the page's configuration it does.
        site.configure(document)
        await site.answers("add", 200)
        assert await site.call("sub") == 403
        await site.says("control", "policy server accepts connections")
        await site.becomes("True", "AcceptsConnections")

        # A renewed certificate is used without a restart.
        before = await shown(envoy)
        site.certify("edge")

        async def renewed() -> bool:
            return bool(await shown(envoy) - before)

        await eventually(renewed, limit=PATIENCE)
        assert await site.call("add") == 200

        # Of several servers, those that answer are used.
        both = f'addresses: ["policy.internal:9443", "{NOBODY}:9443"]'
        site.configure(document.replace("address: policy.internal:9443", both))
        await site.says("control", NOBODY)
        await site.answers("add", 200)
        assert {await site.call("add") for _ in range(20)} == {200}
        await site.becomes("False", "Unreachable")


def test_the_page_has_all_four_commands() -> None:
    document, commands = section()
    assert [each[:2] for each in commands] == [
        ["authplane", "control"],
        ["authplane", "authserver"],
        ["authplane", "bootstrap"],
        ["envoy", "-c"],
    ]
    assert "clientKeyFile" in document
