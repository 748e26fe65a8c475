"""The servers that are compared: ours with two backends, and two that do as little as they can."""

import asyncio
import os
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import bcrypt
from envoy.service.auth.v3 import external_auth_pb2

from authplane.authserver.fronts.runtime.asgi_bodies import Receive
from authplane.authserver.fronts.runtime.asgi_front import Scope, Send
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_front import serve_pyvoy
from authplane.authserver.plan.server_plan import (
    BackendPlan,
    BranchPlan,
    FilePlan,
    FrontPlan,
    HtpasswdPlan,
    ServerPlan,
    TestServerPlan,
)
from authplane.authserver.runtime.server import FACTORY
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import shim_folder
from authplane.runtime.servers.listen import TcpAddress
from authplane.runtime.servers.service_names import SERVICE
from bench.processes import started_here

PASSWORD: Final = "correct horse"  # noqa: S105 (of a user who exists while a benchmark runs)
CREDENTIALS: Final = f"Basic {b64encode(f'ann:{PASSWORD}'.encode()).decode('ascii')}"

_GRPCIO: Final = f"""
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

_PYVOY: Final = """
import asyncio
from pyvoy import PyvoyServer

async def main():
    async with PyvoyServer("bench.servers:bare", worker_threads=1, lifespan=False,
                           additional_envoy_args=["--concurrency", "1"]) as server:
        print(server.listener_port, flush=True)
        await server.wait()

asyncio.run(main())
"""


_IN_BATCHES: Final = """
import os
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
"""
"""What a program and all that it starts are like then: see `run_in_batches` of the pyvoy front."""


async def bare(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read a check and answer the same to all: as little as an application can do."""
    event = await receive()
    external_auth_pb2.CheckRequest.FromString(event["body"][5:])
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": b"\0\0\0\0\2\n\0", "more_body": False})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})


@asynccontextmanager
async def our_testserver() -> AsyncGenerator[int]:
    """Run our front with the test backend; yields its port."""
    async with serve_ours(TestServerPlan()) as port:
        yield port


@asynccontextmanager
async def our_htpasswd() -> AsyncGenerator[int]:
    """Run our front with one user, whose password is hashed with bcrypt; yields its port."""
    users = f"ann:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode('ascii')}\n"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "users"
        path.write_text(users, encoding="ascii")
        async with serve_ours(HtpasswdPlan(files=(FilePlan(path=str(path)),))) as port:
            yield port


@asynccontextmanager
async def bare_grpcio_processes() -> AsyncGenerator[tuple[int, frozenset[int]]]:
    """Run the same; yields its port and its processes."""
    before = started_here()
    async with bare_grpcio() as port:
        yield port, started_here() - before


@asynccontextmanager
async def bare_grpcio() -> AsyncGenerator[int]:
    """Run a gRPC server that returns a constant; yields its port."""
    async with _program(_GRPCIO) as port:
        yield port


@asynccontextmanager
async def bare_pyvoy() -> AsyncGenerator[int]:
    """Run `bare` as pyvoy runs applications; yields its port."""
    async with _program(_PYVOY) as port:
        yield port


@asynccontextmanager
async def bare_grpcio_in_batches() -> AsyncGenerator[int]:
    """Run the same with its threads scheduled as ours are."""
    async with _program(_IN_BATCHES + _GRPCIO) as port:
        yield port


@asynccontextmanager
async def bare_pyvoy_in_batches() -> AsyncGenerator[int]:
    """Run the same with its threads scheduled as ours are."""
    async with _program(_IN_BATCHES + _PYVOY) as port:
        yield port


@asynccontextmanager
async def serve_ours(backend: BackendPlan) -> AsyncGenerator[int]:
    """Serve as `authplane authserver` does, in one worker and without a log; yields the port."""
    front = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0))
    branch = BranchPlan(name="measured", backend=backend)
    plan = ServerPlan(branches=(branch,), fronts=(front,), decision_log="")
    async with serve_pyvoy(plan, front, factory=FACTORY, sink=_ignore) as address:
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


async def _ignore(_: Line) -> None: ...
