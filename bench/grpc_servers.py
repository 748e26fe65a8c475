"""Calls per second of grpcio's servers: bare, with an empty chain of filters from xDS, and with checks.

Servers are on one core; the load and the authorization service are on another.
"""

import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import grpc
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from google.protobuf.message import Message
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.xds_resources import ext_authz, listener, manager
from tests.support.grpc.xds_routes import routes, served

from authplane.runtime.child_processes import Line, run_process
from bench.grpc_program import SERVICE
from bench.h2load import cores
from bench.processes import seconds_used, started_here
from bench.servers import bare_grpcio

_CALLS: Final = 6_000
_ROUNDS: Final = 5
_UPDATES: Final = 50
_VARIANTS: Final = ("bare", "empty", "cached", "call-out", "by hand")
_LIMITS: Final = (("empty", "bare", 0.8), ("cached", "bare", 0.7), ("call-out", "by hand", 0.9))


class Measured(NamedTuple):
    """What a server did."""

    rate: float
    cost: float
    """Seconds of processor time a call: on a machine that does other things as well, this tells more."""


async def main() -> None:
    """Load them in turn, a few times, and compare the best of each; then change the configuration."""
    with cores() as core:
        if core is None:
            return
        with controlling() as control:
            for stack in ("aio", "threads"):
                _compare(stack, await _best(stack, core, control))
            await _updates(control)


def _compare(stack: str, best: dict[str, Measured]) -> None:
    for name, other, limit in _LIMITS:
        one, two = best[name], best[other]
        print(
            f"  {stack}: {name} {one.rate:.0f} calls/s, {one.rate / two.rate:.2f} times the {two.rate:.0f} of {other} "
            f"(limit {limit}); by processor time, {one.cost * 1e6:.0f} and {two.cost * 1e6:.0f} µs a call, "
            f"{two.cost / one.cost:.2f} times",
            flush=True,
        )


async def _best(stack: str, core: int, control: Control) -> dict[str, Measured]:
    """Load all servers in each round: what else the machine does then falls on all of them."""
    rounds: dict[str, list[Measured]] = {name: [] for name in _VARIANTS}
    async with AsyncExitStack() as open_servers:
        check = await open_servers.enter_async_context(elsewhere(core))
        resources: list[Message] = []
        ports, processes = {}, {}
        for name in _VARIANTS:
            before = started_here()
            target = f"127.0.0.1:{check}"
            filters = () if name == "empty" else (ext_authz(target),)
            ports[name] = await open_servers.enter_async_context(
                served_process(stack, name, target, control, resources, *filters)
            )
            processes[name] = started_here() - before
        for port in ports.values():
            await load(port, core, 500)
        for name in list(_VARIANTS) * _ROUNDS:
            used = seconds_used(processes[name])
            rate = await load(ports[name], core, _CALLS)
            rounds[name].append(Measured(rate, (seconds_used(processes[name]) - used) / _CALLS))
    return {
        name: Measured(max(each.rate for each in all_), min(each.cost for each in all_))
        for name, all_ in rounds.items()
    }


@asynccontextmanager
async def elsewhere(core: int) -> AsyncGenerator[int]:
    """Run an authorization service that allows everything, where the load is."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    async with bare_grpcio() as port:
        os.sched_setaffinity(0, mine)
        yield port


@asynccontextmanager
async def served_process(
    stack: str, variant: str, check: str, control: Control, resources: list[Message], *filters: HttpFilter
) -> AsyncGenerator[int]:
    """Run a server in a process of its own that has these filters from xDS; yields its port."""
    lines: asyncio.Queue[str] = asyncio.Queue()

    async def tell(line: Line) -> None:
        lines.put_nowait(line.text)

    argv = [sys.executable, "-m", "bench.grpc_program", stack, variant, check, control.target]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    async with run_process(argv, sink=tell, environment=environment):
        port = int(await lines.get())
        resources.append(listener(port, manager(*filters)))
        control.publish(*resources)
        while await lines.get() != "serves":
            pass
        yield port


async def load(port: int, core: int, calls: int) -> float:
    """Send so many calls, as fast as they are answered; every one must be answered."""
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)

    with TemporaryDirectory() as folder:
        data = Path(folder) / "message"
        data.write_bytes(b"\0\0\0\0\5hello")
        argv = [
            str(shutil.which("taskset")), "-c", str(core), str(shutil.which("h2load")),
            "-n", str(calls), "-c", "4", "-m", "8", "-d", str(data),
            "-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "x-user: ann",
            "-H", "authorization: Bearer abc", f"http://127.0.0.1:{port}/{SERVICE}/Say",
        ]  # fmt: skip
        async with run_process(argv, sink=keep) as child:
            await child.ended()
    text = "\n".join(lines)
    reached = re.search(r", ([0-9.]+) req/s", text)
    if reached is None or f"{calls} succeeded" not in text:
        raise RuntimeError(text)
    return float(reached[1])


async def _updates(control: Control) -> None:
    """Measure from the moment a control plane sends a route to the first call that obeys it."""
    for stack in ("aio", "threads"):
        async with served_process(stack, "empty", "127.0.0.1:1", control, []) as port:
            seconds = [await asyncio.to_thread(_change, control, port, number) for number in range(_UPDATES)]
        print(f"  {stack}: from an update to the first call that obeys it {median(seconds) * 1000:.1f} ms", flush=True)


def _change(control: Control, port: int, number: int) -> float:
    allows = number % 2 == 1
    hosts = routes("inline", served(prefix="/" if allows else "/nothing"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        say: Any = channel.unary_unary(f"/{SERVICE}/Say")
        _is_answered(say)
        begun = time.perf_counter()
        control.publish(listener(port, manager(inline=hosts)))
        while _is_answered(say) != allows:
            pass
        return time.perf_counter() - begun


def _is_answered(say: Any) -> bool:
    try:
        say(b"x", timeout=5)
    except grpc.RpcError:
        return False
    return True
