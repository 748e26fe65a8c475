"""Backends that a front's other process can make from a description."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.support.authservers.scripted_backend import Scripted
from tests.support.authservers.told_checks import Told

from authplane.authserver.backends.htpasswd.htpasswd import Htpasswd, HtpasswdSettings
from authplane.authserver.backends.htpasswd.user_realms import Declared, build_realms
from authplane.authserver.backends.htpasswd.users import parse_users
from authplane.authserver.backends.runtime.hashing import HashPool
from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_front import serve_pyvoy
from authplane.authserver.fronts.runtime.pyvoy.worker import Serving
from authplane.authserver.plan.server_plan import BranchPlan, FilePlan, FrontPlan, HtpasswdPlan, ServerPlan
from authplane.core.secret import Secret
from authplane.policy.check.decision import Allow, Decision, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Busy, Effect, Flow, Outcome, Work
from authplane.runtime.child_processes import LineSink
from authplane.runtime.servers.listen import Address

FACTORY: Final = "tests.support.authservers.front_backends:make"


def plan_for(backend: str, front: FrontPlan, *, file: str = "") -> ServerPlan:
    """Plan a server with a backend of tests, by its name and the file that it needs."""
    branch = BranchPlan(name=backend, backend=HtpasswdPlan(files=(FilePlan(path=file),)))
    return ServerPlan(branches=(branch,), fronts=(front,))


def in_workers(
    backend: str, front: FrontPlan, *, file: str = "", sink: LineSink | None = None
) -> AbstractAsyncContextManager[Address]:
    """Serve a backend of tests inside an Envoy."""
    plan = plan_for(backend, front, file=file)
    if sink is None:
        return serve_pyvoy(plan, front, factory=FACTORY)
    return serve_pyvoy(plan, front, factory=FACTORY, sink=sink)


@asynccontextmanager
async def make(plan: ServerPlan) -> AsyncGenerator[Serving]:
    """Make the backend that `plan_for` planned."""
    match plan.branches:
        case (BranchPlan(name="path"),):
            yield Serving(backend=TestServer(mode=Mode.PATH), observer=Told())
        case (BranchPlan(name="broken"),):
            yield Serving(backend=Broken(), observer=Told())
        case (BranchPlan(name="scripted"),):
            yield Serving(backend=Scripted(), observer=Told())
        case (BranchPlan(name="htpasswd", backend=HtpasswdPlan(files=(FilePlan(path=path),))),):
            backend = _htpasswd(Path(path))
            with HashPool() as pool:
                yield Serving(backend=backend, observer=Told(), perform=pool.perform)
        case (BranchPlan(name="gate", backend=HtpasswdPlan(files=(FilePlan(path=path),))),):
            yield Serving(backend=Gate(Path(path)), observer=Told(), perform=_perform)
        case _:
            raise ValueError(f"no backend is called {plan.branches[0].name}")


def _htpasswd(path: Path) -> Htpasswd:
    backend = Htpasswd(Secret(b"s" * 32), HtpasswdSettings())
    declared = Declared(origin="file", realm=None, users=parse_users(path.read_bytes()).users)
    backend.publish(build_realms([declared], default="default")[0])
    return backend


class Broken:
    """Always fails."""

    name: Final = "broken"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        raise KeyError("hunter2")


@dataclass(frozen=True)
class Gate:
    """Allows ``/free`` at once, and others when somebody writes to a pipe."""

    pipe: Path
    name = "gate"

    def decide(self, request: Request, _now: datetime) -> Decision | Flow:
        return Allow() if request.path == "/free" else self._wait()

    def _wait(self) -> Flow:
        outcome = yield Work(lambda: bool(self.pipe.read_bytes()))
        return Allow() if outcome is True else Unavailable(cause="busy")


async def _perform(effect: Effect) -> Outcome:
    return await asyncio.to_thread(effect.run) if isinstance(effect, Work) else Busy()
