"""Checks per second of the pyvoy front, beside a bare gRPC server and a bare ASGI application in the same run.

Servers are on one core and the load, by h2load, is on another.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from envoy.service.auth.v3 import external_auth_pb2
from tests.policy.checks import check

from authplane.io.asgi import Receive, Scope, Send
from authplane.io.envoy import shim_folder
from authplane.io.listen import TcpAddress
from authplane.io.metrics import Metrics
from authplane.io.observer import Observer
from authplane.io.process import Line, run_process
from authplane.io.pyvoy_front import BackendPlan, PyvoySettings, serve_pyvoy
from authplane.io.services import SERVICE
from authplane.io.workers import Serving
from authplane.policy.testserver import TestServer

_CHECKS = 20_000
_ROUNDS = 5

_GRPCIO = f"""
import asyncio, grpc, grpc.aio

async def check(_body, _context):
    return b"\\n\\0"

async def main():
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler({SERVICE!r}, {{"Check": method}})])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""

_PYVOY = """
import asyncio
from pyvoy import PyvoyServer

async def main():
    async with PyvoyServer("bench.front:bare", worker_threads=1, lifespan=False,
                           additional_envoy_args=["--concurrency", "1"]) as server:
        print(server.listener_port, flush=True)
        await server.wait()

asyncio.run(main())
"""


async def main() -> None:
    """Load the three in turn, a few times, and compare the best of each."""
    cores = sorted(os.sched_getaffinity(0))
    if shutil.which("h2load") is None or len(cores) < 2:
        print("  left out: this needs h2load (Debian: nghttp2-client) and two cores", flush=True)
        return
    os.sched_setaffinity(0, {cores[0]})
    try:
        best = await _best(cores[1])
    finally:
        os.sched_setaffinity(0, cores)
    ours = best["ours"]
    print(
        f"  {ours:.0f} checks/s; {ours / best['grpcio']:.1f} times the {best['grpcio']:.0f} of a bare gRPC server "
        f"(limit 4), {ours / best['pyvoy']:.2f} times the {best['pyvoy']:.0f} of a bare application (limit 0.7)",
        flush=True,
    )


@asynccontextmanager
async def testserver(_description: object) -> AsyncGenerator[Serving]:
    """Serve the test backend with metrics and without a log."""
    backend = TestServer()
    yield Serving(backend=backend, observer=Observer(backend.name, Metrics().checks(backend.name)))


async def bare(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read a check and answer the same to all: as little as an application can do."""
    event = await receive()
    external_auth_pb2.CheckRequest.FromString(event["body"][5:])
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": b"\0\0\0\0\2\n\0", "more_body": False})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})


@asynccontextmanager
async def _ours() -> AsyncGenerator[int]:
    settings = PyvoySettings(address=TcpAddress(host="127.0.0.1", port=0))
    async with serve_pyvoy(BackendPlan(factory="bench.front:testserver"), settings, sink=_ignore) as address:
        yield int(str(address).rpartition(":")[2])


@asynccontextmanager
async def _program(text: str) -> AsyncGenerator[int]:
    """Run a server that prints its port."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def tell(line: Line) -> None:
        if not first.done():
            first.set_result(line.text)

    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(shim_folder()), str(Path.cwd())])}
    async with run_process([sys.executable, "-c", text], sink=tell, environment=environment):
        yield int(await first)


_SERVERS: dict[str, Callable[[], AbstractAsyncContextManager[int]]] = {
    "grpcio": lambda: _program(_GRPCIO),
    "pyvoy": lambda: _program(_PYVOY),
    "ours": _ours,
}


async def _best(core: int) -> dict[str, float]:
    """Load all servers in each round: what else the machine does then falls on all of them."""
    async with AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(server()) for name, server in _SERVERS.items()}
        rounds = [{name: await _load(port, core) for name, port in ports.items()} for _ in range(_ROUNDS)]
    return {name: max(each[name] for each in rounds) for name in ports}


async def _load(port: int, core: int) -> float:
    """Return the checks per second of one run; every check must be answered."""
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)

    headers = {f"x-header-{index}": f"value-{index}" for index in range(12)}
    body = check("/allow?x=1", headers=headers, context={"tenant": "blue"}).SerializeToString()
    with TemporaryDirectory() as folder:
        data = Path(folder) / "check"
        data.write_bytes(b"\0" + len(body).to_bytes(4, "big") + body)
        argv = [
            str(shutil.which("taskset")), "-c", str(core), str(shutil.which("h2load")),
            "-n", str(_CHECKS), "-c", "8", "-m", "16", "-d", str(data),
            "-H", "content-type: application/grpc", "-H", "te: trailers", f"http://127.0.0.1:{port}/{SERVICE}/Check",
        ]  # fmt: skip
        async with run_process(argv, sink=keep) as child:
            await child.ended()
    text = "\n".join(lines)
    rate = re.search(r", ([0-9.]+) req/s", text)
    if rate is None or f"{_CHECKS} succeeded" not in text:
        raise RuntimeError(text)
    return float(rate[1])


async def _ignore(_: Line) -> None: ...
