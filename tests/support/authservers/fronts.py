"""Both gRPC fronts behind one description, so that what holds for one is asked of the other."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from tests.support.authservers.front_backends import FACTORY, make

from authplane.authserver.fronts.runtime.grpcio_front import AuthzSettings, serve_authz
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import Limits
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_front import BackendPlan, PyvoySettings, serve_pyvoy
from authplane.runtime.servers.listen import Address, TcpAddress, TlsPaths, read_server_tls

HERE: Final = TcpAddress(host="127.0.0.1", port=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What both fronts can be told."""

    backend: object = "path"
    address: Address = HERE
    tls: TlsPaths | None = None
    largest_message: int = 4 * 1024 * 1024
    in_flight: int = 1000
    limits: Limits = field(default_factory=Limits)


Front: TypeAlias = Callable[[Wanted], AbstractAsyncContextManager[Address]]


@asynccontextmanager
async def grpcio(wanted: Wanted) -> AsyncGenerator[Address]:
    """Serve in this process."""
    files = wanted.tls or TlsPaths(certificate="", key="")
    settings = AuthzSettings(
        address=wanted.address,
        tls=read_server_tls(certificate=files.certificate, key=files.key, ca=files.ca),
        largest_message=wanted.largest_message,
        in_flight=wanted.in_flight,
        connections=wanted.limits.connections,
    )
    async with (
        make(wanted.backend) as serving,
        serve_authz(serving.backend, settings, observer=serving.observer, perform=serving.perform) as address,
    ):
        yield address


@asynccontextmanager
async def pyvoy(wanted: Wanted) -> AsyncGenerator[Address]:
    """Serve inside an Envoy."""
    settings = PyvoySettings(
        address=wanted.address,
        tls=wanted.tls,
        largest_message=wanted.largest_message,
        in_flight=wanted.in_flight,
        limits=wanted.limits,
    )
    async with serve_pyvoy(BackendPlan(factory=FACTORY, description=wanted.backend), settings) as address:
        yield address


both: Final = pytest.mark.parametrize("front", [grpcio, pytest.param(pyvoy, marks=pytest.mark.real)])
