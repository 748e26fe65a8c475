"""A gateway on this machine: control plane, policy server, Envoy, and the programs that the folder refers to.

The policy server runs in this process, unless the folder's configuration names another one.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, assert_never

from authplane.authserver.backends.runtime.policy_server import keep_policies
from authplane.authserver.backends.testserver import Mode
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan, PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.controlplane.graph.upstreams.policy_connection import OverSocket, PolicyServer
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.serving.generation import Generation
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.controlplane.serving.runtime.native_keys import OFTEN
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.decision_counts import answer_counts
from authplane.devkit.local.claimed_ports import claim_parts, gateway_addresses
from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.devkit.local.issuer_trust import distrust_of_another, distrust_of_ours
from authplane.devkit.local.needed_parts import Part
from authplane.devkit.local.workspace import Workspace
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Verdict
from authplane.runtime.child_processes import Child, Line, LineSink, run_process
from authplane.runtime.clock import now
from authplane.runtime.envoy_process import Envoy, EnvoySettings, envoy_binary, run_envoy
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.run_until_stopped import Stop, first_of
from authplane.runtime.servers.admin import AdminSettings, admin_pages, serve_admin
from authplane.runtime.servers.listen import TcpAddress, UnixAddress
from authplane.runtime.wait_until_listening import reachable
from authplane.sources.runtime.last_good_store import LastGood
from authplane.sources.runtime.read_folder import LOOSEN_AFTER, Folder

NODE: Final = "authplane-run"
_GRACE: Final = 1.0
"""Seconds that each child has to stop before it is killed. All of them stop within three seconds."""


class RunError(Exception):
    """The gateway cannot start or go on. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Output:
    """A line that one of the programs wrote."""

    program: str
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The gateway serves requests: sent when it starts, and after each change."""

    generation: Generation
    parts: Mapping[Part, str]
    """The parts that the folder needed at the start: empty if this program runs them, else who does."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Policies decided a request."""

    request: Request
    verdict: Verdict


RunEvent: TypeAlias = Told | Output | Serving | Decided


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What runs, and where."""

    root: Path
    workspace: Workspace
    quickstart: bool
    """Whether the folder is the quickstart: then every part must be ours."""
    offered: Mapping[Part, TcpAddress]
    """The addresses of the parts that may run; those that the folder refers to do."""
    mode: Mode
    """What the authorization service grants."""
    allow_private_issuers: bool = False
    poll: bool = False
    loosen_after: float = LOOSEN_AFTER
    delta: bool = False
    admin: AdminSettings | None = None
    """Where health, readiness and metrics are served; None is nowhere."""


async def run_gateway(settings: RunSettings, tell: Callable[[RunEvent], None], stop: Stop) -> None:
    """Run everything until the user stops it or a part ends unexpectedly, which raises `RunError`."""
    envoy_binary()  # a missing binary is reported before anything starts
    with TemporaryDirectory(prefix="authplane-") as private:
        last_good = LastGood(settings.workspace.root, settings.root)
        folder = Folder(settings.root, loosen_after=settings.loosen_after, last_good=last_good)
        decider = await _decider(folder, UnixAddress(path=f"{private}/policy.sock"))
        served = asyncio.Event()
        running: dict[Part, str] = {}

        def told(event: Told) -> None:
            tell(event)
            if isinstance(event, Rebuilt) and served.is_set() and control.generation is not None:
                tell(Serving(generation=control.generation, parts=running))

        control = Control(folder, told, _as_envoy_sees(decider))
        xds = UnixAddress(path=f"{private}/xds.sock")
        metrics = Metrics()
        metrics.include(ControlMetrics(control))
        # The policy server in this process uses the same issuers and logs about them.
        issuers = IssuerOptions(
            schedule=OFTEN, allow_private_networks=settings.allow_private_issuers, silent=decider is not None
        )
        control_settings = ControlSettings(address=xds, poll=settings.poll, issuers=issuers)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(control.serve(control_settings))
            generation = _servable(control, settings.root)
            running |= claim_parts(settings.offered, generation, strict=settings.quickstart)
            started = [part for part, elsewhere in running.items() if not elsewhere]
            children = await _start_children(settings, started, tell, stack)
            if Part.ISSUER in running:
                await _provide_issuer(settings, generation, running[Part.ISSUER], stack)
            if decider is not None:
                await stack.enter_async_context(_serve_policies(settings, decider, tell, metrics))
            envoy = await stack.enter_async_context(_start_envoy(xds, settings, tell))
            await stack.enter_async_context(answer_counts(settings.root, envoy, metrics))
            await stack.enter_async_context(_serve_metrics(settings.admin, metrics, served))

            async def announce() -> None:
                await envoy.ready()
                for address in (*gateway_addresses(generation), *(settings.offered[part] for part in started)):
                    await reachable(address)
                served.set()
                tell(Serving(generation=control.generation or generation, parts=running))
                await stop.asked()

            # Stopping, edits and the end of a part count from here on, also while programs are still starting.
            await first_of(
                stop.asked,
                announce,
                lambda: control.follow(control_settings),
                _ends("Envoy process", envoy),
                *(_ends(part.value, child) for part, child in children),
            )


async def _decider(folder: Folder, ours: UnixAddress) -> UnixAddress | None:
    """Return the socket of our policy server; None if the configuration names another policy server."""
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
    """Run the policy server while the block runs."""
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
    pages = admin_pages(metrics, {"gateway": lambda: "" if served.is_set() else "Envoy is not ready."})
    async with serve_admin(admin, pages):
        yield


def _servable(control: Control, root: Path) -> Generation:
    generation = control.generation
    if generation is None or not generation.built.graph.ports:
        raise RunError(f"{root} has no resource that authplane can serve. Run 'authplane validate {root}' to see why.")
    return generation


async def _provide_issuer(settings: RunSettings, generation: Generation, elsewhere: str, stack: AsyncExitStack) -> None:
    """Serve the development issuer unless another program does; raises `RunError` if the folder does not trust it.

    Without the issuer's keys, every request with a token would get 503.
    """
    address = settings.offered[Part.ISSUER]
    if elsewhere:
        problem = await distrust_of_another(generation, address, elsewhere)
    else:
        plan = IssuerPlan(folder=settings.workspace.dev, address=address)
        running = await stack.enter_async_context(serve_issuer(plan, now()))
        problem = distrust_of_ours(generation, address, running.ca_file)
    if problem:
        raise RunError(problem)


async def _start_children(
    settings: RunSettings, parts: Collection[Part], tell: Callable[[RunEvent], None], stack: AsyncExitStack
) -> list[tuple[Part, Child]]:
    children = []
    # First the one that takes the longest.
    for part in (Part.TOOLS, Part.AUTHSERVER, Part.ECHO):
        if part in parts:
            argv = [sys.executable, "-m", *_command(part, settings)]
            sink = _sink(part.value, tell)
            children.append((part, await stack.enter_async_context(run_process(argv, sink=sink, grace=_GRACE))))
    return children


def _command(part: Part, settings: RunSettings) -> list[str]:
    address = settings.offered[part]
    match part:
        case Part.TOOLS:
            return ["authplane.devkit.local.sample_tools", str(address)]
        case Part.AUTHSERVER:
            return _authserver(settings, address)
        case Part.ECHO:
            return ["authplane", "echo", "--address", str(address), "--log-format", "json"]
        case Part.ISSUER:
            raise ValueError("the issuer runs in this process")
        case _:
            assert_never(part)


def _authserver(settings: RunSettings, address: TcpAddress) -> list[str]:
    workspace, own = settings.workspace, (settings.root / "authserver.crt", settings.root / "authserver.key")
    certificate, key = workspace.authserver_certificate, workspace.authserver_key
    if not settings.quickstart and all(path.is_file() for path in own):
        # The folder's CA Secret fits its own files, as examples/make_secrets.py writes them.
        certificate, key = own
    return [
        "authplane", "authserver", "testserver", "--address", str(address), "--mode", settings.mode.value,
        # This engine starts fastest.
        "--engine", "grpcio", "--metrics-address", "", "--decision-log", "", "--log-format", "json",
        "--tls-cert-path", str(certificate), "--tls-key-path", str(key),
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
        raise RunError(
            f"The {name} ended unexpectedly with exit status {status}. "
            "Read its output above, correct the cause, then run 'authplane run' again."
        )

    return watch
