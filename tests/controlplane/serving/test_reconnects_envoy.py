"""Envoy asks a control plane that is away at least every two seconds or so: what changed meanwhile must not wait."""

import asyncio
from itertools import pairwise

import pytest

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, Tcp, ads_bootstrap
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy

ATTEMPTS = 10
LONGEST = 2.0
SLACK = 1.5
"""What a busy machine may add."""


@pytest.mark.real
@pytest.mark.parametrize("delta", [False, True])
async def test_the_pause_between_attempts_does_not_grow_beyond_two_seconds(delta: bool) -> None:
    attempts: asyncio.Queue[float] = asyncio.Queue()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.put_nowait(asyncio.get_running_loop().time())
        writer.close()

    async def sink(_: Line) -> None: ...

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    bootstrap = json_text(ads_bootstrap(ControlPlane(where=Tcp("127.0.0.1", port), delta=delta), node="test"))
    settings = EnvoySettings(concurrency=1, log_level="critical")
    async with server, run_envoy(bootstrap, sink=sink, settings=settings):
        async with asyncio.timeout(60):
            times = [await attempts.get() for _ in range(ATTEMPTS)]
    assert max(later - earlier for earlier, later in pairwise(times)) < LONGEST + SLACK
