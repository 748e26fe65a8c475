"""What is decided can be seen: in the terminal, and in one table of Envoy's decisions and the policy server's."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import McpGateway, backend, gateway, policy, route
from tests.support.mcp.mcp_checks import AGENT
from tests.support.ports import free_port

from authplane.devkit.diagnosis.decision_counts import find_counts
from authplane.devkit.diagnosis.envoy_stats import STATS
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.clients.ask_page import NotAnsweredError, ask_page

pytestmark = pytest.mark.real

CONFIGURATION = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec:
  gateway: {address: 127.0.0.1}
"""
SOURCE = f"source: {{type: SPIFFE, spiffe: '{AGENT}'}}"
ADD = "{type: InlineTools, tools: [add]}"
LOOP = "{type: CEL, cel: '[request.mcp.tool_name].exists(x, x == \"read\")'}"
"""Envoy has no loops, so the policy server decides it."""
MIXED = f"[{{name: work, {SOURCE}, authorization: [{ADD}, {LOOP}]}}]"


@dataclass
class Running:
    """A running `authplane run`, with what it writes."""

    site: McpGateway
    lines: list[Line] = field(default_factory=list)

    async def says(self, words: str) -> None:
        async def holds() -> bool:
            return any(words in line.text for line in self.lines)

        try:
            await eventually(holds)
        except TimeoutError:
            raise AssertionError("\n".join(line.text for line in self.lines)) from None

    async def decisions(self) -> dict[str, Any]:
        """Return what `authplane decisions` prints for programs."""
        printed: list[str] = []

        async def sink(line: Line) -> None:
            printed.append(line.text)

        argv = [sys.executable, "-m", "authplane", "decisions", str(self.site.folder), "-o", "json"]
        async with run_process(argv, sink=sink) as child:
            status = await child.ended()
        assert status == 0, printed
        told: dict[str, Any] = json.loads("\n".join(printed))
        return told


@asynccontextmanager
async def running(root: Path, policies: str) -> AsyncGenerator[Running]:
    """Run everything for one Backend; who is let through is answered by an echo origin."""
    folder = root / "resources"
    folder.mkdir()
    echo = free_port()
    it = Running(McpGateway(folder=folder, http=free_port(), https=free_port(), origins={}))
    documents = [
        CONFIGURATION, gateway(it.site.http, it.site.https), tls_secret("tls", server("localhost")), ca_secret("ca"),
        backend("shop"), service("shop", echo), route("shop", {"shop": 1}), policies,
    ]  # fmt: skip
    it.site.write("all.yaml", "\n---\n".join(documents))

    async def sink(line: Line) -> None:
        it.lines.append(line)

    argv = [sys.executable, "-m", "authplane", "run", str(folder), "--state-dir", str(root / "state")]
    argv += ["--authserver-address", "", "--echo-address", f"127.0.0.1:{echo}"]
    async with run_process(argv, sink=sink, grace=5):
        await it.says("Press Ctrl-C to stop")
        yield it


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def row(rule: str, entry: str, by: str, policy: str = "default/shop", **counts: int) -> dict[str, Any]:
    names = {"policy": policy, "rule": rule, "entry": entry, "decidedBy": by, "effect": "decided"}
    return names | {"allowed": 0, "denied": 0, "undecided": 0} | counts


@pytest.mark.requirement("A03")
async def test_decisions_of_envoy_and_of_the_policy_server_stand_in_one_table(tmp_path: Path) -> None:
    async with running(tmp_path, policy(MIXED)) as it:
        async with it.site.http_client(spiffe_id=AGENT) as http:
            for tool, status in (("add", 200), ("add", 200), ("read", 200), ("wipe", 403)):
                assert (await it.site.call(http, tool)).status_code == status
            large = await it.site.call(http, "add", much="x" * 70_000)
            assert large.status_code == 413
        async with it.site.http_client() as http:
            assert (await it.site.call(http, "add")).status_code == 403
        await it.says("/shop: allowed by Envoy with default/shop/work/0:InlineTools")
        await it.says("/shop tools/call read: granted to spiffe://")
        await it.says("/shop tools/call wipe: denied to spiffe://")
        await it.says("/shop tools/call add: denied by Envoy: no rule of default/shop grants the request")
        await it.says("/shop: rejected by Envoy before it evaluated policies: the body is too large")
        assert await it.decisions() == {
            "decisions": [
                row("", "", "Envoy", policy="", denied=1),
                row("work", "0:InlineTools", "Envoy", allowed=2),
                row("work", "0:InlineTools", "policy server", denied=1),
                row("work", "1:CEL", "policy server", allowed=1),
            ],
            "silent": [],
        }
        socket = find_counts(it.site.folder)
        for target in ("/config_dump", "/quitquitquit", "/stats", f"{STATS}x"):
            with pytest.raises(NotAnsweredError, match="answered 404"):
                await asyncio.to_thread(ask_page, socket, target)


async def test_rules_of_several_policies_are_each_named(tmp_path: Path) -> None:
    rules = f"[{{name: work, {SOURCE}, authorization: [{ADD}]}}]"
    several = "\n---\n".join(policy(rules, name=name) for name in ("one.v1", "two"))
    async with running(tmp_path, several) as it:
        async with it.site.http_client(spiffe_id=AGENT) as http:
            assert (await it.site.call(http, "add")).status_code == 200
            assert (await it.site.call(http, "wipe")).status_code == 403
        granted = "default/one.v1/work/0:InlineTools and default/two/work/0:InlineTools"
        await it.says(f"/shop: allowed by Envoy with {granted}")
        await it.says(
            f"/shop tools/call wipe: denied to {AGENT} by Envoy: no rule of default/one.v1 or default/two grants"
        )
        told = await it.decisions()
        assert told["decisions"] == [
            row("", "", "Envoy", policy="", denied=1),
            row("work", "0:InlineTools", "Envoy", policy="default/one.v1", allowed=1) | {"effect": "one of several"},
            row("work", "0:InlineTools", "Envoy", policy="default/two", allowed=1) | {"effect": "one of several"},
        ]


async def test_what_a_policy_in_shadow_would_do_stands_beside_the_decision(tmp_path: Path) -> None:
    trial = policy(f"[{{name: work, {SOURCE}, authorization: [{ADD}]}}]", name="trial")
    trial = trial.replace("spec:", "spec:\n  mode: Shadow", 1)
    async with running(tmp_path, f"{policy(MIXED)}\n---\n{trial}") as it:
        async with it.site.http_client(spiffe_id=AGENT) as http:
            assert (await it.site.call(http, "read")).status_code == 200
        await it.says("; shadow mode: AccessPolicy/default/trial work 0:InlineTools would deny (tool_not_listed)")
