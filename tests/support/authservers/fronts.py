"""Both gRPC fronts behind one description, so that what holds for one is asked of the other."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from tests.support.authservers.front_backends import in_workers, make, plan_for

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontLimits, FrontPlan
from authplane.runtime.servers.listen import Address, TcpAddress, TlsPaths

HERE: Final = TcpAddress(host="127.0.0.1", port=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What both fronts can be told."""

    backend: str = "path"
    file: str = ""
    """What the backend needs."""
    address: Address = HERE
    tls: TlsPaths | None = None
    largest_message: int = 4 * 1024 * 1024
    in_flight: int = 1000
    limits: FrontLimits = field(default_factory=FrontLimits)

    @property
    def front(self) -> FrontPlan:
        return FrontPlan(
            address=self.address,
            tls=self.tls or TlsPaths(),
            largest_message=self.largest_message,
            in_flight=self.in_flight,
            limits=self.limits,
        )


Front: TypeAlias = Callable[[Wanted], AbstractAsyncContextManager[Address]]


@asynccontextmanager
async def grpcio(wanted: Wanted) -> AsyncGenerator[Address]:
    """Serve in this process."""
    async with (
        make(plan_for(wanted.backend, wanted.front, file=wanted.file)) as serving,
        serve_authz(serving.backend, wanted.front, observer=serving.observer, perform=serving.perform) as address,
    ):
        yield address


@asynccontextmanager
async def pyvoy(wanted: Wanted) -> AsyncGenerator[Address]:
    """Serve inside an Envoy."""
    async with in_workers(wanted.backend, wanted.front, file=wanted.file) as address:
        yield address


both: Final = pytest.mark.parametrize("front", [grpcio, pytest.param(pyvoy, marks=pytest.mark.real)])
