"""The authorization service as a program."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, assert_never

import structlog

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.fronts.runtime.http_front import HttpChecks, serve_http_checks
from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_front import serve_pyvoy
from authplane.authserver.fronts.runtime.pyvoy.worker import Serving
from authplane.authserver.plan.server_plan import Engine, FrontPlan, HtpasswdPlan, PolicyPlan, ServerPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.runtime.server_backends import PlanError, require_usable, serving
from authplane.core.addresses import is_loopback
from authplane.runtime.child_processes import forward
from authplane.runtime.run_until_stopped import Stop, on_hangup, run_program
from authplane.runtime.secret_files import warn_of_open_files
from authplane.runtime.servers.admin import Obstacle, admin_pages, serve_admin
from authplane.runtime.servers.listen import Address, UnixAddress

log: Final = structlog.stdlib.get_logger()

FACTORY: Final = "authplane.authserver.runtime.server_backends:serving"
"""What makes the backends in a worker."""


DEFAULT_ENGINE: Final = Engine.PYVOY if sys.platform == "linux" else Engine.GRPCIO


def serve_checks(plan: ServerPlan) -> None:
    """Serve until the program is stopped."""

    async def program(stop: Stop) -> None:
        reachable = _reachable_by_strangers(plan)
        if reachable:
            _require_permission(plan, reachable[0])
            log.warning("accepting checks from other machines without client certificates", fix="set --tls-ca-path")
        warn_of_open_files(_secrets(plan))
        async with _fronts(plan) as addresses:
            for kind, address in addresses.items():
                log.info(
                    "authorization service listening", protocol=kind, address=str(address), engine=plan.engine.value
                )
            for ca in sorted({front.tls.ca for front in plan.fronts if front.tls.ca}):
                # Who moves from contour-authserver learns here why Envoy cannot connect.
                log.info("requiring client certificates", ca_file=ca, option="--tls-ca-path")
            await stop.asked()

    run_program(program)


def _secrets(plan: ServerPlan) -> tuple[str, ...]:
    """Return the files that contain a key or passwords."""
    users = (
        file.path for each in plan.branches if isinstance(each.backend, HtpasswdPlan) for file in each.backend.files
    )
    return (*{front.tls.key for front in plan.fronts}, *users)


def _reachable_by_strangers(plan: ServerPlan) -> tuple[Address, ...]:
    """Return the addresses that accept checks from other machines without a client certificate."""
    return tuple(
        front.address
        for front in plan.fronts
        if not (front.tls.ca or isinstance(front.address, UnixAddress) or is_loopback(front.address.host))
    )


def _require_permission(plan: ServerPlan, address: Address) -> None:
    """Raise `PlanError` if a policy relies on the proxy's identity, or if the user has not set ``--public``."""
    if any(isinstance(branch.backend, PolicyPlan) for branch in plan.branches):
        raise PlanError(
            f"Refusing to listen on {address} without client certificates: policies trust what the proxy reports "
            "about its clients. Use --tls-ca-path, or a loopback address."
        )
    if not plan.public:
        raise PlanError(
            f"Refusing to listen on {address} without client certificates. "
            "Use --tls-ca-path, a loopback address, or --public."
        )


def _fronts(plan: ServerPlan) -> AbstractAsyncContextManager[dict[str, Address]]:
    require_usable(plan)
    match plan.engine:
        case Engine.GRPCIO:
            return _in_this_process(plan)
        case Engine.PYVOY:
            return _in_workers(plan)
        case _:
            assert_never(plan.engine)


@asynccontextmanager
async def _in_this_process(plan: ServerPlan) -> AsyncGenerator[dict[str, Address]]:
    if any(front.workers != 1 for front in plan.fronts):
        raise PlanError("Engine grpcio runs in one process. Use --engine pyvoy for more workers.")
    if any(front.tls and front.form is not None for front in plan.fronts):
        raise PlanError("Engine grpcio does not serve HTTP checks over TLS. Use --engine pyvoy.")
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(serving(plan))
        stack.enter_context(on_hangup(made.reopen))
        if plan.admin is not None and made.pages is not None:
            await stack.enter_async_context(serve_admin(plan.admin, made.pages))
        bound = {}
        for front in plan.fronts:
            bound[front.protocol] = await stack.enter_async_context(_front_here(made, front))
        yield bound


def _front_here(made: Serving, front: FrontPlan) -> AbstractAsyncContextManager[Address]:
    if front.form is None:
        return serve_authz(made.backend, front, observer=made.observer, perform=made.perform, ready=made.ready)
    checks = HttpChecks(
        made.backend, front.form, observer=made.observer, perform=made.perform, in_flight=front.in_flight
    )
    return serve_http_checks(checks, front.address)


@asynccontextmanager
async def _in_workers(plan: ServerPlan) -> AsyncGenerator[dict[str, Address]]:
    """Serve in workers; the parent serves the admin port and collects from all workers."""
    own = Metrics()
    async with AsyncExitStack() as stack:
        # Workers notice by themselves that a log file was moved away; the signal must not end us.
        stack.enter_context(on_hangup(lambda: None))
        fleet = None
        if plan.admin is not None:
            fleet = Fleet(own)
            parts: dict[str, Obstacle] = {front.protocol: fleet.obstacle(front.protocol) for front in plan.fronts}
            pages = admin_pages(fleet, parts)
            await stack.enter_async_context(serve_admin(plan.admin, pages))
            await stack.enter_async_context(fleet.followed())
        bound = {}
        for front in plan.fronts:
            served = serve_pyvoy(plan, front, factory=FACTORY, sink=forward, output=_standard_output(), fleet=fleet)
            bound[front.protocol] = await stack.enter_async_context(served)
        yield bound


def _standard_output() -> int:
    """Return where workers write decisions: to read their lines and write them again cost more than a decision.

    A program that was started without standard output may have something else under that number by now.
    """
    return subprocess.DEVNULL if sys.__stdout__ is None else 1
