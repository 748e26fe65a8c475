"""The authorization service's fast gRPC front: Python inside Envoy, in one or more processes on one port."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeAlias, assert_never

import structlog

from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.fronts.runtime.pyvoy.handshake_lines import readable_line
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import STATS, Json, only_readable_paths, render_worker
from authplane.authserver.fronts.runtime.pyvoy.worker import SOCKET, worker_environment
from authplane.authserver.fronts.runtime.pyvoy.worker_certificates import Certificates
from authplane.authserver.fronts.runtime.pyvoy.worker_watchdog import hangs
from authplane.authserver.plan.server_plan import FrontLimits, FrontPlan, ServerPlan
from authplane.core.values import dataclass
from authplane.runtime.child_processes import Line, LineSink, Stream, owned_tasks, run_process
from authplane.runtime.envoy_process import Envoy, EnvoyEndedError, EnvoyError, EnvoySettings, run_envoy, shim_folder
from authplane.runtime.log import settled
from authplane.runtime.servers.listen import (
    Address,
    AddressInvalidError,
    AddressTakenError,
    TcpAddress,
    UnixAddress,
    claim,
)

_APPLICATION: Final = "authplane.authserver.fronts.runtime.pyvoy.worker:app"
_ASK: Final = f"""\
import json
from pyvoy._server import PyvoyServer, get_envoy_environ
server = PyvoyServer({_APPLICATION!r}, worker_threads=1, lifespan=True)
print(json.dumps([server.get_envoy_config(), get_envoy_environ()]))
"""
_START: Final = 60.0
_POLL: Final = 0.02
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
"""How long a worker that ended stays away, in seconds; one that lives longer than this starts again at once."""

_SHARED_CALLS: Final = 200
"""Calls on one connection to several workers: a new connection costs about as much as one check, with TLS a few."""

_log: Final = structlog.stdlib.get_logger()


async def _to_stderr(line: Line) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line.text}\n")
        sys.stderr.flush()


@asynccontextmanager
async def serve_pyvoy(  # noqa: PLR0913 (all but three have a default)
    plan: ServerPlan,
    front: FrontPlan,
    *,
    factory: str,
    sink: LineSink = _to_stderr,
    output: int | None = None,
    fleet: Fleet | None = None,
) -> AsyncGenerator[Address]:
    """Serve a front of a server while the block runs; yields the address with the actual port.

    Raises a `ListenError` if the address or the certificate cannot be used, and an `EnvoyError` if a worker does not
    start. A worker that ends later is started again. ``factory`` is ``module:name`` of what makes the backends in each
    worker (`Factory` in `worker`). What workers write goes to ``sink``; with ``output``, they write their
    standard output to this descriptor instead. ``fleet`` hears which of them run.
    """
    if front.workers > 1 and isinstance(front.address, UnixAddress):
        raise AddressInvalidError(f"{front.workers} workers cannot share {front.address}. Use a port.")
    claim(front.address)
    # Only this process knows where its log goes.
    told = replace(plan, log_format=settled(plan.log_format))
    with _private_folder() as folder, _reserved(front.address) as bound:
        certificates = Certificates(front.tls, folder) if front.tls else None
        secrets = None if certificates is None else certificates.files
        asked = await _ask_pyvoy()
        filters = asked.filters if front.form is None else [only_readable_paths(), *asked.filters]
        run = _WorkerRun(
            config=json.dumps(render_worker(filters, bound, _shared(front), secrets)),
            environment=os.environ | asked.environment | worker_environment(told, front, factory),
            grace=front.grace,
            sink=sink,
            output=output,
            member=_members(fleet, front.protocol),
            folder=folder,
            restore=None if certificates is None else certificates.restore,
        )
        async with owned_tasks() as tasks:
            stop = asyncio.Event()
            for number in range(front.workers):
                up = asyncio.Event()
                tasks.create_task(_supervise(run, number, stop=stop, up=up))
                await up.wait()
            follower = None if certificates is None else tasks.create_task(certificates.follow())
            try:
                yield _shown(front.address, bound)
            finally:
                stop.set()
                if follower is not None:
                    follower.cancel()


def _shared(front: FrontPlan) -> FrontLimits:
    """Have clients of several workers change their connections: each new one goes to any worker, as the system likes.

    A client such as Envoy has one connection for each of its threads, and would keep to the workers it found first.
    """
    limits = front.limits
    return limits if front.workers == 1 or limits.calls is not None else replace(limits, calls=_SHARED_CALLS)


@contextmanager
def _private_folder() -> Iterator[Path]:
    try:
        made = TemporaryDirectory(prefix="authplane-")
    except OSError as error:
        raise EnvoyEndedError(
            f"Cannot start a worker: {error}. Check the free disk space and the process limits of this machine."
        ) from error
    with made as name:
        yield Path(name)


class _Asked(NamedTuple):
    """The filters and the environment that pyvoy needs in Envoy."""

    filters: list[Json]
    environment: dict[str, str]


_ANSWERS: Final[dict[str, _Asked]] = {}
"""The output of pyvoy, by interpreter: it never changes, so a front need not wait for it again."""


async def _ask_pyvoy() -> _Asked:
    known = _ANSWERS.get(sys.executable)
    if known is None:
        known = _ANSWERS[sys.executable] = await _ask_pyvoy_anew()
    return known


async def _ask_pyvoy_anew() -> _Asked:
    """Run pyvoy in a separate process: here its package ``envoy`` would be the wrong one."""
    said: list[Line] = []

    async def keep(line: Line) -> None:
        said.append(line)

    path = os.pathsep.join(map(str, [shim_folder(), *filter(None, sys.path)]))
    environment = os.environ | {"PYTHONPATH": path}
    async with run_process([sys.executable, "-P", "-c", _ASK], sink=keep, environment=environment) as child:
        try:
            async with asyncio.timeout(_START):
                status = await child.ended()
        except TimeoutError as error:
            raise EnvoyEndedError(
                f"pyvoy did not respond within {_START:g} s. Retry, or use --engine grpcio."
            ) from error
    if status != 0:
        remedy = "Install authplane again, or use --engine grpcio."
        raise EnvoyEndedError("\n".join(["pyvoy failed to start:", *(line.text for line in said), remedy]))
    config, wanted = json.loads("".join(line.text for line in said if line.stream is Stream.STDOUT))
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return _Asked(manager["http_filters"], wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerRun:
    """How each worker is run."""

    config: str
    environment: Mapping[str, str] = field(repr=False)
    grace: float
    sink: LineSink
    output: int | None
    """The descriptor of their standard output; without it, that goes to the sink."""
    member: "_Member"
    folder: Path
    """Where the workers' sockets are."""
    restore: Callable[[], None] | None
    """Makes sure that the files are there that the configuration names."""


_Member: TypeAlias = Callable[[int, str], AbstractContextManager[None]]
"""Has the worker of a number, with its socket, among those that run."""


def _members(fleet: Fleet | None, front: str) -> _Member:
    return (lambda _number, _socket: nullcontext()) if fleet is None else partial(fleet.member, front)


async def _supervise(run: _WorkerRun, number: int, *, stop: asyncio.Event, up: asyncio.Event) -> None:
    """Keep one worker running until ``stop``; only its first start may fail."""
    clock = asyncio.get_running_loop().time
    pause = _SHORTEST_PAUSE
    while True:
        begun = clock()
        try:
            status = await _live(run, number, stop=stop, up=up)
        except EnvoyError as error:
            if not up.is_set():
                raise
            _log.error("worker failed to start", worker=number, why=str(error))
        except OSError as error:
            # No room for a file or for a process, for instance: the other workers must not end of it.
            if not up.is_set():
                raise EnvoyEndedError(
                    f"Cannot start a worker: {error}. Check the free disk space and the process limits of this machine."
                ) from error
            _log.error("worker failed to start", worker=number, why=str(error))
        else:
            if stop.is_set():
                return
            _log.error("worker ended", worker=number, status=status)
        pause = _SHORTEST_PAUSE if clock() - begun > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
        if await _set_within(stop, pause):
            return


async def _live(run: _WorkerRun, number: int, *, stop: asyncio.Event, up: asyncio.Event) -> int | None:
    """Run one worker until it ends or ``stop`` is set, in which case it finishes what it has begun."""
    socket = str(run.folder / f"worker-{number}.sock")
    settings = EnvoySettings(
        concurrency=1,
        log_level="warning",
        grace=run.grace,
        environment={**run.environment, SOCKET: socket},
        output=run.output,
    )
    if run.restore is not None:
        run.restore()

    async def tell(line: Line) -> None:
        await run.sink(replace(line, text=readable_line(line.text)))

    async with run_envoy(run.config, sink=tell, settings=settings) as envoy, owned_tasks() as tasks:
        await envoy.ready(limit=_START)
        run_in_batches(envoy.pid)
        ended = tasks.create_task(envoy.ended())
        stopped = tasks.create_task(stop.wait())
        hung = tasks.create_task(hangs(envoy.answers, envoy.pid))
        with run.member(number, socket):
            up.set()
            await asyncio.wait([ended, stopped, hung], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if hung.done() and not ended.done():
            # It still takes connections, or at least the system does for it, and answers none.
            _log.error("killed a hung worker", worker=number)
            envoy.kill()
            await ended
        hung.cancel()
        if not ended.done():
            await _drain(envoy, run.grace)
            ended.cancel()
            return None
        return ended.result()


def run_in_batches(process: int) -> None:
    """Let no thread of a process preempt another by waking it; threads with a scheduling policy of their own keep it.

    A check goes from Envoy's thread to those of Python and back, and each wakes the next one. On a core that they share
    the kernel would switch to it at once, several times a check; now a thread first finishes what it has before it.
    """
    with contextlib.suppress(OSError):
        for folder in Path(f"/proc/{process}/task").iterdir():
            thread = int(folder.name)
            # One that has ended by now is no reason to leave out the others.
            with contextlib.suppress(OSError):
                if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                    os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


async def _drain(envoy: Envoy, grace: float) -> None:
    """Take no more connections, ask clients to leave, and wait until no call is in progress."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(grace):
            for order in ("/healthcheck/fail", "/drain_listeners"):
                await envoy.admin(order, method="POST")
            while await _busy(envoy):  # noqa: ASYNC110 (Envoy does not report when it has finished)
                await asyncio.sleep(_POLL)


async def _busy(envoy: Envoy) -> bool:
    name = f"http.{STATS}.downstream_rq_active"
    reply = await envoy.admin(f"/stats?filter=^{name}$")
    return reply.body.strip() != f"{name}: 0"


@contextmanager
def _reserved(address: Address) -> Iterator[Address]:
    """Reserve the port for the workers, which share it, so that a restart finds it free; yields it with its number.

    A socket that is bound but does not listen gets no connections.
    """
    match address:
        case UnixAddress():
            yield address
        case TcpAddress(host=host, port=port):
            with contextlib.closing(_holder(host, port)) as holder:
                name = holder.getsockname()
                yield TcpAddress(host=name[0], port=name[1])
        case _:
            assert_never(address)


def _holder(host: str, port: int) -> socket.socket:
    wildcard = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 (every interface is what an empty host means)
    try:
        found = socket.getaddrinfo(host or wildcard, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        holder = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressInvalidError(
            f"{host!r} is not an address of this machine. Use an address or a name of this machine."
        ) from error
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(host)))
        holder.bind(where)
    except OSError as error:
        holder.close()
        raise AddressTakenError(TcpAddress(host=host, port=port), error.strerror or "") from error
    return holder


def _shown(wanted: Address, bound: Address) -> Address:
    """Name the address as the user did, with the port that was taken."""
    if isinstance(wanted, TcpAddress) and isinstance(bound, TcpAddress):
        return TcpAddress(host=wanted.host, port=bound.port)
    return wanted


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
