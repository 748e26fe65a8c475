"""The authorization server as a program."""

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

import structlog

from authplane.authserver.backends.runtime.policy_plan import PolicyPlan
from authplane.authserver.engine.http_check import Form
from authplane.authserver.fronts.runtime.grpcio_front import AuthzSettings, serve_authz
from authplane.authserver.fronts.runtime.http_front import HttpChecks, serve_http_checks
from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_front import BackendPlan, PyvoySettings, serve_pyvoy
from authplane.authserver.records.runtime.decision_log import DecisionLog, ToStandardOutput, open_decision_log
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.runtime.server_backends import (
    DescriptionError,
    HtpasswdPlan,
    ServingPlan,
    require_usable,
    serving,
)
from authplane.core.addresses import is_loopback
from authplane.runtime.child_processes import Line, LineSink, Stream, forward
from authplane.runtime.log import LogFormat
from authplane.runtime.run_until_stopped import Stop, on_hangup, run_program
from authplane.runtime.secret_files import warn_of_open_files
from authplane.runtime.servers.admin import AdminSettings, Obstacle, admin_pages, serve_admin
from authplane.runtime.servers.listen import Address, TlsPaths, UnixAddress
from authplane.runtime.servers.tls_files import TlsFiles

log: Final = structlog.stdlib.get_logger()

_FACTORY: Final = "authplane.authserver.runtime.server_backends:serving"


class Engine(StrEnum):
    """What carries the server."""

    GRPCIO = "grpcio"
    """One process; runs wherever grpcio does."""
    PYVOY = "pyvoy"
    """Python inside Envoy, in as many processes as wanted."""


DEFAULT_ENGINE: Final = Engine.PYVOY if sys.platform == "linux" else Engine.GRPCIO


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What is served, where and how."""

    serving: ServingPlan
    address: Address
    tls: TlsPaths
    public: bool = False
    """Other machines may ask without a certificate, unless policies believe what they say."""
    engine: Engine
    workers: int = 1
    in_flight: int = 1000
    http: tuple[Address, Form] | None = None
    """Where HTTP checks are answered, and how they are asked."""
    admin: AdminSettings | None = None
    """Where health, readiness and metrics are served."""
    log_format: LogFormat = LogFormat.AUTO


def serve_checks(plan: ServerPlan) -> None:
    """Serve until the program is stopped."""

    async def program(stop: Stop) -> None:
        if not _asked_by_known_proxies(plan):
            _require_permission(plan)
            log.warning("other machines can ask for decisions without showing a certificate: give a CA for clients")
        warn_of_open_files(_secrets(plan))
        async with _fronts(plan) as addresses:
            for kind, address in addresses.items():
                log.info("authorization server listens", protocol=kind, address=str(address), engine=plan.engine.value)
            await stop.asked()

    run_program(program)


def _secrets(plan: ServerPlan) -> tuple[str, ...]:
    """Return the files that hold a key or passwords."""
    users = (
        file.path
        for each in plan.serving.branches
        if isinstance(each.backend, HtpasswdPlan)
        for file in each.backend.files
    )
    return (plan.tls.key, *users)


def _asked_by_known_proxies(plan: ServerPlan) -> bool:
    """Tell whether only this machine, or who has a certificate, can ask."""
    addresses = [plan.address, *([plan.http[0]] if plan.http else [])]
    local = all(isinstance(each, UnixAddress) or is_loopback(each.host) for each in addresses)
    return local or bool(plan.tls.ca)


def _require_permission(plan: ServerPlan) -> None:
    """Raise `DescriptionError` if a backend believes what its proxy says, or nobody said that strangers may ask."""
    if any(isinstance(branch.backend, PolicyPlan) for branch in plan.serving.branches):
        raise DescriptionError(
            "policies believe what a proxy says of its client's certificate, so other machines must show one:"
            " give a CA for clients, or listen on this machine only"
        )
    if not plan.public:
        raise DescriptionError(
            "other machines could ask for decisions without showing a certificate:"
            " give a CA for clients, listen on this machine only, or say --public"
        )


def _fronts(plan: ServerPlan) -> AbstractAsyncContextManager[dict[str, Address]]:
    require_usable(plan.serving)
    match plan.engine:
        case Engine.GRPCIO:
            return _in_this_process(plan)
        case Engine.PYVOY:
            return _in_workers(plan)
        case _:
            assert_never(plan.engine)


@asynccontextmanager
async def _in_this_process(plan: ServerPlan) -> AsyncGenerator[dict[str, Address]]:
    if plan.workers != 1:
        raise DescriptionError("the grpcio engine has one process: use --engine pyvoy for more workers")
    tls = TlsFiles.open(certificate=plan.tls.certificate, key=plan.tls.key, ca=plan.tls.ca)
    if tls is not None and plan.http is not None:
        raise DescriptionError("HTTP checks over TLS need --engine pyvoy")
    settings = AuthzSettings(address=plan.address, tls=tls, in_flight=plan.in_flight)
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(serving(plan.serving.described()))
        stack.enter_context(on_hangup(made.reopen))
        if plan.admin is not None and made.pages is not None:
            await stack.enter_async_context(serve_admin(plan.admin, made.pages))
        bound = {
            "grpc": await stack.enter_async_context(
                serve_authz(made.backend, settings, observer=made.observer, perform=made.perform, ready=made.ready)
            )
        }
        if plan.http is not None:
            address, form = plan.http
            checks = HttpChecks(
                made.backend, form, observer=made.observer, perform=made.perform, in_flight=plan.in_flight
            )
            bound["http"] = await stack.enter_async_context(serve_http_checks(checks, address))
        yield bound


@asynccontextmanager
async def _in_workers(plan: ServerPlan) -> AsyncGenerator[dict[str, Address]]:
    """Serve in workers; the port for people and Prometheus is the parent's, who asks them all."""
    own = Metrics()
    backend = BackendPlan(factory=_FACTORY, description=plan.serving.described())
    common = PyvoySettings(
        address=plan.address, tls=plan.tls or None, in_flight=plan.in_flight, log_format=plan.log_format
    )
    fronts = {"grpc": replace(common, workers=plan.workers)}
    if plan.http is not None:
        fronts["http"] = replace(common, address=plan.http[0], http=plan.http[1])
    async with AsyncExitStack() as stack:
        # Workers notice by themselves that a log file was moved away; the signal must not end us.
        stack.enter_context(on_hangup(lambda: None))
        fleet = None
        if plan.admin is not None:
            fleet = Fleet(own)
            parts: dict[str, Obstacle] = {front: fleet.obstacle(front) for front in fronts}
            pages = admin_pages(fleet, parts)
            await stack.enter_async_context(serve_admin(plan.admin, pages))
            await stack.enter_async_context(fleet.followed())
        # The lines of the workers are written by a thread: who does not read them must not hold us up.
        lines = stack.enter_context(open_decision_log(ToStandardOutput(), lost=own.lines_lost))
        bound = {}
        for front, settings in fronts.items():
            served = serve_pyvoy(backend, settings, sink=_passed_on(lines), fleet=fleet)
            bound[front] = await stack.enter_async_context(served)
        yield bound


def _passed_on(lines: DecisionLog) -> LineSink:
    async def sink(line: Line) -> None:
        if line.stream is Stream.STDOUT:
            lines.write(f"{line.text}\n")
        else:
            await forward(line)

    return sink
