"""Load from another core, by h2load: checks over HTTP/2, as a proxy sends them."""

import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import grpc
import grpc.aio
from envoy.service.auth.v3 import external_auth_pb2
from tests.support.authservers.check_requests import check

from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.servers.service_names import SERVICE

_PATIENCE: Final = 10.0


class Measured(NamedTuple):
    """What came of a load."""

    rate: float
    """Requests per second."""
    latencies: tuple[float, ...]
    """Of each request, in seconds, the shortest first."""

    def quantile(self, part: float) -> float:
        """Return what this part of the requests took at most."""
        return self.latencies[int(part * (len(self.latencies) - 1))]


class Posted(NamedTuple):
    """A request that is sent again and again."""

    url: str
    body: bytes
    headers: Mapping[str, str]


class Connections(NamedTuple):
    """How many connections a load has, and how many requests are in flight on each."""

    number: int
    streams: int


EIGHT: Final = Connections(8, 16)
ONE: Final = Connections(1, 8)


def message(path: str = "/allow?x=1", **headers: str) -> external_auth_pb2.CheckRequest:
    """Build a check with twelve headers and these."""
    many = {f"x-header-{index}": f"value-{index}" for index in range(12)}
    return check(path, headers=many | headers, context={"tenant": "blue"})


@contextmanager
def cores() -> Generator[int | None]:
    """Keep what is started here on one core while the block runs; yields another one, for the load.

    Yields None, having said why, where that cannot be done.
    """
    mine = sorted(os.sched_getaffinity(0))
    if shutil.which("h2load") is None or len(mine) < 2:
        print("  left out: this needs h2load (Debian: nghttp2-client) and two cores", flush=True)
        yield None
        return
    os.sched_setaffinity(0, {mine[0]})
    try:
        yield mine[1]
    finally:
        os.sched_setaffinity(0, mine)


async def require_allowed(port: int, asked: external_auth_pb2.CheckRequest) -> None:
    """Raise if a server does not allow a check: to be fast at refusing is nothing to measure."""
    if code := await _status(port, asked):
        raise RuntimeError(f"the server on port {port} answered {code}")


async def require_denied(port: int, asked: external_auth_pb2.CheckRequest) -> None:
    """Raise if a server allows a check that its policy must deny."""
    if not await _status(port, asked):
        raise RuntimeError(f"the server on port {port} allowed {asked}")


async def _status(port: int, asked: external_auth_pb2.CheckRequest) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Check")
        reply = await call(asked.SerializeToString(), timeout=_PATIENCE, wait_for_ready=True)
    return external_auth_pb2.CheckResponse.FromString(reply).status.code


async def load(
    port: int, core: int, asked: external_auth_pb2.CheckRequest, checks: int, *, rate: float | None = None
) -> Measured:
    """Send so many checks, as fast as they are answered or at a rate; every one must be answered."""
    return await send(posted_check(port, asked), core, checks, rate=rate)


def posted_check(port: int, asked: external_auth_pb2.CheckRequest) -> Posted:
    """Return the HTTP/2 request of a check."""
    body = asked.SerializeToString()
    headers = {"content-type": "application/grpc", "te": "trailers"}
    url = f"http://127.0.0.1:{port}/{SERVICE}/Check"
    return Posted(url, b"\0" + len(body).to_bytes(4, "big") + body, headers)


async def send(
    posted: Posted, core: int, requests: int, *, rate: float | None = None, connections: Connections = EIGHT
) -> Measured:
    """Send a request so many times, as fast as it is answered or at a rate; every one must be answered with 2xx."""
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)

    with TemporaryDirectory() as folder:
        data, log = Path(folder) / "body", Path(folder) / "log"
        data.write_bytes(posted.body)
        argv = [
            str(shutil.which("taskset")), "-c", str(core), str(shutil.which("h2load")),
            "-n", str(requests), "-c", str(connections.number), "-m", str(connections.streams),
            "-d", str(data), "--log-file", str(log),
            *([] if rate is None else ["--rps", str(rate / connections.number)]),
            *(word for name, value in posted.headers.items() for word in ("-H", f"{name}: {value}")), posted.url,
        ]  # fmt: skip
        async with run_process(argv, sink=keep) as child:
            await child.ended()
        text = "\n".join(lines)
        reached = re.search(r", ([0-9.]+) req/s", text)
        if reached is None or f"{requests} succeeded" not in text:
            raise RuntimeError(text)
        rows = log.read_text(encoding="ascii").splitlines()
    return Measured(float(reached[1]), tuple(sorted(int(row.split("\t")[2]) / 1e6 for row in rows)))
