"""A policy server with two workers, behind the real Envoy, under load that does not end."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import httpx2
import pytest
from tests.support.authservers.server_process import Server
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.gateways.contour_gateway import service
from tests.support.mcp.mcp_checks import call_body
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World
from tests.support.timing import slowness

from authplane.authserver.fronts.runtime.pyvoy.worker_watchdog import processor_time
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

PATIENCE: Final = START_LIMIT
CLIENTS: Final = 8
BAR: Final = 2.0
"""Seconds that a hung worker may cost."""
HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def resources(port: int, origin: int, policy_server: int) -> list[str]:
    return [
        service("tools", origin),
        f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{address: 127.0.0.1}}
  placement: CallOut
  policyServer: {{address: "127.0.0.1:{policy_server}"}}
""",
        """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {type: MCP, mcp: {serviceName: tools, port: 80}}
""",
        f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: authplane
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
""",
        """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]}]
""",
        """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: shop}
spec:
  targetRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]
  rules: [{name: adding, authorization: [{type: InlineTools, tools: [add]}]}]
""",
    ]


class Answer(NamedTuple):
    """What became of a request, and how long it took."""

    status: int
    seconds: float


@dataclass
class Load:
    """Clients that call as fast as they are answered."""

    url: str
    answered: list[Answer] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with httpx2.AsyncClient(timeout=PATIENCE) as client, asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(self._call(client)) for _ in range(CLIENTS)]
            yield
            for each in clients:
                each.cancel()

    async def _call(self, client: httpx2.AsyncClient) -> None:
        while True:
            begun = time.monotonic()
            response = await client.post(self.url, content=call_body("add"), headers=HEADERS)
            self.answered.append(Answer(response.status_code, time.monotonic() - begun))

    async def answers(self, count: int) -> None:
        """Wait for so many further answers."""
        goal = len(self.answered) + count

        async def reached() -> bool:
            return len(self.answered) >= goal

        await eventually(reached, limit=PATIENCE)


@dataclass
class Site:
    """What runs."""

    server: Server
    load: Load

    async def replaced(self, hung: int) -> None:
        """Wait until two other workers run and answer."""

        async def holds() -> bool:
            ready = (await self.server.metrics()).get("workers grpc") == 2
            return ready and hung not in self.server.workers()

        await eventually(holds, limit=PATIENCE)


@asynccontextmanager
async def site(root: Path) -> AsyncGenerator[Site]:
    server, port = Server(), free_port()
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serve_echo(TcpAddress(host="127.0.0.1", port=0)))
        assert isinstance(origin, TcpAddress)
        documents = resources(port, origin.port, server.grpc)
        (root / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
        options = ("--engine", "pyvoy", "--workers", "2", "--decision-log", "")
        await stack.enter_async_context(server.running("policy", str(root), *options))

        async def sink(_: Line) -> None: ...

        bootstrap = json_text(static_bootstrap(World(documents).generation.rendered))
        # One thread has one connection at a time: the least even that there is.
        envoy = await stack.enter_async_context(run_envoy(bootstrap, sink=sink, settings=EnvoySettings(concurrency=1)))
        await envoy.ready(limit=START_LIMIT)
        await listening(TcpAddress(host="127.0.0.1", port=port))
        yield Site(server, Load(f"http://127.0.0.1:{port}/mcp"))


@pytest.mark.real
async def test_workers_share_the_checks_and_one_that_hangs_costs_less_than_two_seconds(tmp_path: Path) -> None:
    async with site(tmp_path) as it, it.load.running():
        await it.load.answers(200)
        workers = it.server.workers()
        before = [processor_time(each) or 0 for each in workers]
        await it.load.answers(3000)
        used = [(processor_time(each) or 0) - earlier for each, earlier in zip(workers, before, strict=True)]
        # 15 connections went to either worker, as a coin falls: fewer than 2 of 15 are one in 1,000 trials.
        assert min(used) > max(used) / 8, used
        for hung in workers:
            known, slow = len(it.load.answered), slowness()
            os.kill(hung, signal.SIGSTOP)
            await it.replaced(hung)
            await it.load.answers(200)
            answers = it.load.answered[known:]
            # Envoy repeats the checks that the hung worker had, on other connections: nobody sees an error, and who
            # waits, waits for a keepalive or two.
            assert {each.status for each in answers} == {200}
            assert max(each.seconds for each in answers) < 2 * BAR * max(slow, slowness()), answers
