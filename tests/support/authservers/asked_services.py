"""Small authorization services inside a test, asked over real gRPC."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from tests.support.authservers.told_checks import Told

from authplane.authserver.engine.backend import Backend
from authplane.authserver.fronts.runtime.answer_checks import Perform, no_room
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.policy.check.decision import Allow, Decision, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Effect, Flow, Outcome, Work
from authplane.runtime.servers.listen import TcpAddress


@asynccontextmanager
async def asked(backend: Backend, *, perform: Perform = no_room) -> AsyncGenerator[int]:
    """Serve checks without TLS and yield the port."""
    settings = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0))
    async with serve_authz(backend, settings, observer=Told(), perform=perform) as address:
        assert isinstance(address, TcpAddress)
        yield address.port


@dataclass
class Recording:
    """Remembers what it is asked, and says what it is told to."""

    name: ClassVar = "recording"
    say: Callable[[Request], Decision] = lambda _: Allow()
    requests: list[Request] = field(default_factory=list)

    def decide(self, request: Request, _now: datetime) -> Decision:
        self.requests.append(request)
        return self.say(request)


@dataclass
class Slow:
    """Allows everything, but not before it is told to."""

    name: ClassVar = "slow"
    now: asyncio.Event = field(default_factory=asyncio.Event)

    def decide(self, _request: Request, _now: datetime) -> Flow:
        outcome = yield Work(lambda: True)
        return Allow() if outcome is True else Unavailable(cause="nobody works")

    async def perform(self, _effect: Effect) -> Outcome:
        await self.now.wait()
        return True
