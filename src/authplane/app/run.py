"""Everything on this machine: control plane, authorization server, echo origin and Envoy."""

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from authplane.app.control import Control, ControlSettings, Told
from authplane.graph.model import Address as GatewayAddress
from authplane.graph.model import Graph
from authplane.io.envoy import Envoy, EnvoySettings, envoy_binary, run_envoy
from authplane.io.folder import Folder
from authplane.io.listen import Address, TcpAddress, UnixAddress, claim
from authplane.io.process import Child, Line, LineSink, run_process
from authplane.io.ready import reachable
from authplane.io.serve import Stop, first_of
from authplane.io.workspace import Workspace
from authplane.policy.testserver import Mode
from authplane.render.bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.render.dump import json_text

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


RunEvent: TypeAlias = Told | Output | Started


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What runs, and where."""

    root: Path
    workspace: Workspace
    authserver: TcpAddress | None
    mode: Mode
    echo: TcpAddress | None
    poll: bool = False
    delta: bool = False


async def run_gateway(settings: RunSettings, tell: Callable[[RunEvent], None], stop: Stop) -> None:
    """Run everything until the user stops it or a part of it ends by itself, which raises `RunError`."""
    envoy_binary()  # a missing binary is said before anything starts
    with TemporaryDirectory(prefix="authplane-") as private:
        control = Control(Folder(settings.root), tell)
        xds = UnixAddress(path=f"{private}/xds.sock")
        control_settings = ControlSettings(address=xds, poll=settings.poll)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(control.serve(control_settings))
            graph = _servable(control, settings.root)
            needed = _needed(settings, graph)
            for address in needed:
                claim(address)
            parts = [_ends(name, child) for name, child in await _start_children(settings, tell, stack)]
            envoy = await stack.enter_async_context(_start_envoy(xds, settings, tell))

            async def announce() -> None:
                await _until_served(envoy, needed)
                tell(Started(graph))
                await stop.asked()

            # Stopping, edits and the end of a part count from here on, while things are still starting.
            await first_of(
                stop.asked, announce, lambda: control.follow(control_settings), _ends("Envoy", envoy), *parts
            )


async def _until_served(envoy: Envoy, needed: list[Address]) -> None:
    await envoy.ready()
    for address in needed:
        await reachable(address)


def _servable(control: Control, root: Path) -> Graph:
    graph = control.generation.built.graph if control.generation else None
    if graph is None or not (graph.plain_hosts or graph.secure_hosts or graph.gateways):
        raise RunError(f"nothing in {root} can be served: see 'authplane validate {root}'")
    return graph


def _needed(settings: RunSettings, graph: Graph) -> list[Address]:
    listeners = [(graph.http, graph.plain_hosts), (graph.https, graph.secure_hosts)]
    gateway = [_tcp(address) for address, hosts in listeners if hosts]
    gateway += [_tcp(port.where) for port in graph.gateways]
    needed = [*gateway, *(address for address in (settings.authserver, settings.echo) if address)]
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
    commands: list[tuple[str, list[str]]] = []
    if settings.authserver:
        workspace = settings.workspace
        commands.append(
            (
                "authserver",
                [
                    "authserver", "testserver", "--address", str(settings.authserver), "--mode", settings.mode.value,
                    # The engine that starts fastest; nobody measures a quickstart.
                    "--engine", "grpcio", "--metrics-address", "", "--decision-log", "",
                    "--tls-cert-path", str(workspace.authserver_certificate),
                    "--tls-key-path", str(workspace.authserver_key),
                ],
            )
        )  # fmt: skip
    if settings.echo:
        commands.append(("echo", ["echo", "--address", str(settings.echo)]))
    children = []
    for name, arguments in commands:
        argv = [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"]
        child = await stack.enter_async_context(run_process(argv, sink=_sink(name, tell), grace=_GRACE))
        children.append((name, child))
    return children


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
