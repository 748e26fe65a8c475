"""Everything on this machine: control plane, authorization servers, origins and Envoy.

Whatever AccessPolicies protect is decided here, in this process: so policies are enforced as soon as there are any.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from authplane.authserver.backends.runtime.policy_server import keep_policies
from authplane.authserver.backends.testserver import Mode
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan, PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.port_model import Address as GatewayAddress
from authplane.controlplane.graph.upstreams.policy_connection import OverSocket, PolicyServer
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Told
from authplane.controlplane.serving.runtime.native_keys import OFTEN
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.decision_counts import answer_counts
from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.devkit.local.workspace import Workspace
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Verdict
from authplane.runtime.child_processes import Child, Line, LineSink, run_process
from authplane.runtime.clock import now
from authplane.runtime.envoy_process import Envoy, EnvoySettings, envoy_binary, run_envoy
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.run_until_stopped import Stop, first_of
from authplane.runtime.servers.admin import AdminSettings, admin_pages, serve_admin
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress, claim
from authplane.runtime.wait_until_listening import reachable
from authplane.sources.runtime.last_good_store import LastGood
from authplane.sources.runtime.read_folder import LOOSEN_AFTER, Folder

NODE: Final = "authplane-run"
_GRACE: Final = 1.0
"""Seconds that each child has to end by itself: all of them together end well within three."""


class RunError(Exception):
    """The gateway cannot start or go on; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Output:
    """A line that one of the programs wrote."""

    program: str
    line: Line


@dataclass(frozen=True, slots=True)
class Started:
    """Requests are served."""

    graph: Graph


@dataclass(frozen=True, slots=True)
class Decided:
    """Policies have decided about a request."""

    request: Request
    verdict: Verdict


RunEvent: TypeAlias = Told | Output | Started | Decided


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What runs, and where."""

    root: Path
    workspace: Workspace
    authserver: TcpAddress | None
    mode: Mode
    echo: TcpAddress | None
    tools: TcpAddress | None = None
    """Where the MCP server of the quickstart listens."""
    issuer: TcpAddress | None = None
    """Where the development issuer of the quickstart listens."""
    allow_private_issuers: bool = False
    poll: bool = False
    loosen_after: float = LOOSEN_AFTER
    delta: bool = False
    admin: AdminSettings | None = None
    """Where health, readiness and metrics are served; None is nowhere."""


async def run_gateway(settings: RunSettings, tell: Callable[[RunEvent], None], stop: Stop) -> None:
    """Run everything until the user stops it or a part of it ends by itself, which raises `RunError`."""
    envoy_binary()  # a missing binary is said before anything starts
    with TemporaryDirectory(prefix="authplane-") as private:
        last_good = LastGood(settings.workspace.root, settings.root)
        folder = Folder(settings.root, loosen_after=settings.loosen_after, last_good=last_good)
        decider = await _decider(folder, UnixAddress(path=f"{private}/policy.sock"))
        control = Control(folder, tell, _as_envoy_sees(decider))
        xds = UnixAddress(path=f"{private}/xds.sock")
        metrics = Metrics()
        metrics.include(ControlMetrics(control))
        # We decide by policies here with the same issuers, and say so, unless somebody else does.
        issuers = IssuerOptions(
            schedule=OFTEN, allow_private_networks=settings.allow_private_issuers, silent=decider is not None
        )
        control_settings = ControlSettings(address=xds, poll=settings.poll, issuers=issuers)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(control.serve(control_settings))
            graph = _servable(control, settings.root)
            needed = _needed(settings, graph)
            for address in needed:
                claim(address)
            parts = [_ends(name, child) for name, child in await _start_children(settings, tell, stack)]
            if settings.issuer is not None:
                plan = IssuerPlan(folder=settings.workspace.dev, address=settings.issuer)
                await stack.enter_async_context(serve_issuer(plan, now()))
            if decider is not None:
                await stack.enter_async_context(_serve_policies(settings, decider, tell, metrics))
            envoy = await stack.enter_async_context(_start_envoy(xds, settings, tell))
            await stack.enter_async_context(answer_counts(settings.root, envoy, metrics))
            served = asyncio.Event()
            await stack.enter_async_context(_serve_metrics(settings.admin, metrics, served))

            async def announce() -> None:
                await _until_served(envoy, needed)
                served.set()
                tell(Started(graph))
                await stop.asked()

            # Stopping, edits and the end of a part count from here on, while things are still starting.
            await first_of(
                stop.asked, announce, lambda: control.follow(control_settings), _ends("Envoy", envoy), *parts
            )


async def _decider(folder: Folder, ours: UnixAddress) -> UnixAddress | None:
    """Return where we decide by policies; None if the documents say that somebody else does."""
    folder.scan()
    await folder.quiet()
    configuration = folder.library.current().resources.configuration
    return ours if configuration is None or configuration.spec.policy_server is None else None


def _as_envoy_sees(decider: UnixAddress | None) -> PolicyServer | None:
    return None if decider is None else PolicyServer(addresses=(OverSocket(decider.path),))


@asynccontextmanager
async def _serve_policies(
    settings: RunSettings, address: UnixAddress, tell: Callable[[RunEvent], None], metrics: Metrics
) -> AsyncGenerator[None]:
    """Decide by the policies of the folder while the block runs."""
    plan = PolicyPlan(
        folder=str(settings.root),
        allow_private_issuers=settings.allow_private_issuers,
        poll=settings.poll,
        state_dir=str(settings.workspace.root),
        loosen_after=settings.loosen_after,
    )

    def shown(made: Answer, verdict: Verdict) -> None:
        if isinstance(made.request, Request):
            tell(Decided(made.request, verdict))

    async with keep_policies("policy", plan, metrics, quiet=True) as kept:
        observer = Observer("policy", metrics.checks("policy"), verdicts=(kept.counts.record, shown))
        front = FrontPlan(address=address, grace=_GRACE)
        async with serve_authz(kept.backend, front, observer=observer, perform=kept.perform):
            yield


@asynccontextmanager
async def _serve_metrics(admin: AdminSettings | None, metrics: Metrics, served: asyncio.Event) -> AsyncGenerator[None]:
    if admin is None:
        yield
        return
    pages = admin_pages(metrics, {"gateway": lambda: "" if served.is_set() else "Envoy does not listen yet"})
    async with serve_admin(admin, pages):
        yield


async def _until_served(envoy: Envoy, needed: list[Address]) -> None:
    await envoy.ready()
    for address in needed:
        await reachable(address)


def _servable(control: Control, root: Path) -> Graph:
    graph = control.generation.built.graph if control.generation else None
    if graph is None or not graph.ports:
        raise RunError(f"nothing in {root} can be served: see 'authplane validate {root}'")
    return graph


def _needed(settings: RunSettings, graph: Graph) -> list[Address]:
    gateway = [_tcp(port.where) for port in graph.ports]
    own = (settings.authserver, settings.echo, settings.tools, settings.issuer)
    needed = [*gateway, *(address for address in own if address)]
    ports = Counter(address.port for address in needed)
    twice = [port for port, times in ports.items() if times > 1]
    if twice:
        raise RunError(f"port {twice[0]} is wanted by two of the programs: give one of them another")
    return list(needed)


def _tcp(address: GatewayAddress) -> TcpAddress:
    return TcpAddress(host=address.address, port=address.port)


async def _start_children(
    settings: RunSettings, tell: Callable[[RunEvent], None], stack: AsyncExitStack
) -> list[tuple[str, Child]]:
    programs: list[tuple[str, list[str]]] = []
    if settings.tools:
        # First, since it takes the longest.
        programs.append(("tools", ["authplane.devkit.local.sample_tools", str(settings.tools)]))
    if settings.authserver:
        programs.append(("authserver", _authserver(settings, settings.authserver)))
    if settings.echo:
        programs.append(("echo", ["authplane", "echo", "--address", str(settings.echo), "--log-format", "json"]))
    children = []
    for name, arguments in programs:
        argv = [sys.executable, "-m", *arguments]
        child = await stack.enter_async_context(run_process(argv, sink=_sink(name, tell), grace=_GRACE))
        children.append((name, child))
    return children


def _authserver(settings: RunSettings, address: TcpAddress) -> list[str]:
    workspace = settings.workspace
    return [
        "authplane", "authserver", "testserver", "--address", str(address), "--mode", settings.mode.value,
        # The engine that starts fastest; nobody measures a quickstart.
        "--engine", "grpcio", "--metrics-address", "", "--decision-log", "", "--log-format", "json",
        "--tls-cert-path", str(workspace.authserver_certificate), "--tls-key-path", str(workspace.authserver_key),
    ]  # fmt: skip


@asynccontextmanager
async def _start_envoy(
    xds: UnixAddress, settings: RunSettings, tell: Callable[[RunEvent], None]
) -> AsyncGenerator[Envoy]:
    bootstrap = ads_bootstrap(ControlPlane(where=UnixSocket(xds.path), delta=settings.delta), node=NODE)
    envoy_settings = EnvoySettings(log_level="error", grace=_GRACE, flush_seconds=0.1)
    async with run_envoy(json_text(bootstrap), sink=_sink("envoy", tell), settings=envoy_settings) as envoy:
        yield envoy


def _sink(program: str, tell: Callable[[RunEvent], None]) -> LineSink:
    async def take(line: Line) -> None:
        tell(Output(program, line))

    return take


def _ends(name: str, program: Child | Envoy) -> Callable[[], Coroutine[None, None, None]]:
    async def watch() -> None:
        status = await program.ended()
        raise RunError(f"{name} ended by itself with status {status}")

    return watch
