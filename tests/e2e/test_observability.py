"""The dashboard and the alert rules ask for metrics that the programs and Envoy really have."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import McpGateway, backend, configuration, gateway, policy, route
from tests.support.issuers.issuer_server import IssuerServer, issuer_server
from tests.support.issuers.minting import signer
from tests.support.mcp.mcp_checks import AGENT
from tests.support.ports import free_port
from tests.support.promql import asked_in, expressions, grouping_labels

from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import Envoy, EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress
from authplane.runtime.wait_until_listening import reachable

SOURCE = f"source: {{type: SPIFFE, spiffe: '{AGENT}'}}"
ADD = "{type: InlineTools, tools: [add]}"
LOOP = "{type: CEL, cel: '[request.mcp.tool_name].exists(x, x == \"read\")'}"
"""Envoy has no loops, so the policy server decides it."""


@dataclass
class Scene:
    """Control plane, policy server and Envoy, each with its metrics."""

    root: Path
    site: McpGateway
    control: int
    server: int
    lines: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def program(self, *arguments: str) -> AsyncGenerator[None]:
        async def sink(line: Line) -> None:
            self.lines.append(line.text)

        argv = [sys.executable, "-m", "authplane", *arguments]
        environment = dict(os.environ) | {"XDG_RUNTIME_DIR": str(self.root)}
        async with run_process(argv, sink=sink, grace=5, environment=environment):
            yield

    async def bootstrap(self) -> str:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "authplane", "bootstrap", "--address", f"unix:{self.root}/xds.sock",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, _ = await child.communicate()
        return printed.decode()

    async def page(self, port: int, target: str) -> str:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            return (await client.get(target)).text

    async def ready(self, port: int) -> None:
        async def holds() -> bool:
            try:
                return await self.page(port, "/readyz") == "ready\n"
            except httpx2.TransportError:
                return False

        try:
            await eventually(holds, limit=60)
        except TimeoutError:
            raise AssertionError("\n".join(self.lines)) from None

    async def watch(self, envoy: Envoy) -> dict[str, str]:
        """Return what Prometheus reads, by job."""
        return {
            "envoy": (await envoy.admin("/stats/prometheus")).body,
            "policy-server": await self.page(self.server, "/metrics"),
            "control-plane": await self.page(self.control, "/metrics"),
        }


def documents(root: Path, site: McpGateway, issuer: IssuerServer, origin: int) -> str:
    oidc = f"source: {{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    rules = (
        f"[{{name: work, {SOURCE}, authorization: [{ADD}, {LOOP}]}}, {{name: token, {oidc}, authorization: [{ADD}]}}]"
    )
    trial = policy(f"[{{name: work, {SOURCE}, authorization: [{ADD}]}}]", name="trial")
    return "\n---\n".join((
        configuration(root, [issuer.url], ""),
        gateway(site.http, site.https),
        tls_secret("tls", server("localhost")), ca_secret("ca"),
        backend("shop"), service("shop", origin), route("shop", {"shop": 1}),
        policy(rules), trial.replace("spec:", "spec:\n  mode: Shadow", 1),
    ))  # fmt: skip


@asynccontextmanager
async def running(root: Path) -> AsyncGenerator[tuple[Scene, Envoy]]:
    """Run everything as separate programs, and send a request of each sort."""
    folder = root / "resources"
    folder.mkdir()
    site = McpGateway(folder=folder, http=free_port(), https=free_port(), origins={})
    scene = Scene(root, site, free_port(), free_port())
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuer_server(root))
        issuer.publish(signer("ES256", "k1"))
        echo = await stack.enter_async_context(serve_echo(TcpAddress(host="127.0.0.1", port=0)))
        assert isinstance(echo, TcpAddress)
        site.write("all.yaml", documents(root, site, issuer, echo.port))
        control, checks = (f"unix:{root}/{name}.sock" for name in ("xds", "policy"))
        for kind, address, port in (
            (["authserver", "policy"], checks, scene.server),
            (["control"], control, scene.control),
        ):
            options = ["--address", address, "--metrics-address", f"127.0.0.1:{port}", "--log-format", "json"]
            await stack.enter_async_context(scene.program(*kind, str(folder), *options))
        await scene.ready(scene.server)
        await scene.ready(scene.control)

        async def sink(_: Line) -> None: ...

        settings = EnvoySettings(concurrency=1)
        envoy = await stack.enter_async_context(run_envoy(await scene.bootstrap(), sink=sink, settings=settings))
        await envoy.ready()
        await reachable(TcpAddress(host="127.0.0.1", port=site.https))
        async with site.http_client(spiffe_id=AGENT) as http:
            for tool, status in (("add", 200), ("read", 200), ("wipe", 403)):
                assert (await site.call(http, tool)).status_code == status
        async with site.http_client() as http:
            assert (await site.call(http, "add")).status_code == 401
        yield scene, envoy


def labels_of(text: str) -> dict[str, frozenset[str]]:
    """Return the metrics of a program with the labels that they have: none where nothing has been counted yet."""
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    for sample in re.finditer(r"^([a-z]\w*)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2] or ""))
    return {name: frozenset(labels) for name, labels in found.items()}


BY_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds."""
WITHOUT_SAMPLES = {"authplane_cel_failures_total"}
"""Metrics that have no sample as long as nothing is wrong."""


@pytest.mark.real
@pytest.mark.requirement("O02")
async def test_the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    async with running(tmp_path) as (scene, envoy):
        told = await scene.watch(envoy)
    known = {"up": frozenset[str]()}
    for text in told.values():
        known |= labels_of(text)
    wrong: list[str] = []
    for where, expression in expressions().items():
        asked = list(asked_in(expression))
        assert asked, where
        wrong += [f"{where}: there is no {each.metric}" for each in asked if each.metric not in known]
        wrong += [
            f"{where}: {each.metric} has no label {label}"
            for each in asked
            if each.metric in known and each.metric not in WITHOUT_SAMPLES
            for label in each.labels - known[each.metric] - BY_PROMETHEUS
        ]
        available = frozenset[str]().union(*(known.get(each.metric, frozenset()) for each in asked)) | BY_PROMETHEUS
        if not any(each.metric in WITHOUT_SAMPLES for each in asked):
            wrong += [f"{where}: nothing has the label {label}" for label in grouping_labels(expression) - available]
    assert wrong == []
    # The names of clusters and of rules, by which some of them choose, are those of our configuration.
    assert 'envoy_cluster_upstream_rq_total{envoy_cluster_name="authplane_policy"}' in told["envoy"]
    assert re.search(r'envoy_http_rbac_policy_allowed\{.*policy="default/shop"', told["envoy"])
