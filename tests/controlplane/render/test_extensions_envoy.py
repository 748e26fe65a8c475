"""A filter that the real Envoy is told about by a resource of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from envoy.config.core.v3.config_source_pb2 import ExtensionConfigSource
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import (
    DirectResponseAction,
    HeaderMatcher,
    Route,
    RouteMatch,
    VirtualHost,
)
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.fault.v3.fault_pb2 import FaultAbort, HTTPFault
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
    Rds,
)
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.v3.percent_pb2 import FractionalPercent
from google.protobuf.message import Message
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import LIMIT, START_LIMIT, eventually, listening
from tests.support.ports import free_port

from authplane.controlplane.graph.model.programming import Answered
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.render.envoy_pieces import FROM_ADS, pack, socket_address, type_url
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy
from authplane.runtime.servers.listen import TcpAddress, UnixAddress
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.stream_messages import Nacked

pytestmark = pytest.mark.real

FILTER = "answers"
"""The filter, and the resource that configures it."""
TABLE = "table"
NEVER = 600.0
"""Seconds that a step waits for Envoy: no test may go on because time ran out."""


def filter_that_answers(status: int) -> TypedExtensionConfig:
    """Return the filter that answers those with this status who ask for it; others are for the routes."""
    asked = HeaderMatcher(name="x-ask", string_match=StringMatcher(exact="filter"))
    always = FractionalPercent(numerator=100)
    fault = HTTPFault(abort=FaultAbort(http_status=status, percentage=always), headers=[asked])
    return TypedExtensionConfig(name=FILTER, typed_config=pack(fault))


def listener(port: int, *, filtered: bool = True) -> Listener:
    source = ExtensionConfigSource(config_source=FROM_ADS, type_urls=[type_url(HTTPFault())])
    first = [HttpFilter(name=FILTER, config_discovery=source)] if filtered else []
    manager = HttpConnectionManager(
        stat_prefix="web",
        rds=Rds(config_source=FROM_ADS, route_config_name=TABLE),
        http_filters=[*first, HttpFilter(name="router", typed_config=pack(Router()))],
    )
    chain = FilterChain(filters=[Filter(name="http", typed_config=pack(manager))])
    return Listener(name="web", address=socket_address("127.0.0.1", port), filter_chains=[chain])


def table(status: int) -> RouteConfiguration:
    answer = Route(match=RouteMatch(prefix="/"), direct_response=DirectResponseAction(status=status))
    return RouteConfiguration(name=TABLE, virtual_hosts=[VirtualHost(name="all", domains=["*"], routes=[answer])])


def snapshot(*messages: Message) -> Snapshot:
    bodies: dict[TypeUrl, dict[str, bytes]] = {}
    for message in messages:
        kind: Any = message
        bodies.setdefault(TypeUrl(type_url(message)), {})[kind.name] = message.SerializeToString(deterministic=True)
    return Snapshot.of(bodies)


class Connection:
    """One connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def answers(self) -> tuple[int, int]:
        """Return what the routes answer and what the filter answers; an error if the connection is closed."""
        return await self._get("routes"), await self._get("filter")

    async def become(self, routes: int, answer: int) -> None:
        async def holds() -> bool:
            return await self.answers() == (routes, answer)

        await eventually(holds)

    async def _get(self, asked: str) -> int:
        async with asyncio.timeout(5):
            self._writer.write(f"GET / HTTP/1.1\r\nhost: a\r\nx-ask: {asked}\r\n\r\n".encode())
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1])


@asynccontextmanager
async def connection(port: int) -> AsyncGenerator[Connection]:
    await listening(TcpAddress(host="127.0.0.1", port=port))  # Envoy takes a listener shortly before it listens
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


class Told:
    """An Envoy and the control planes that it has, one after the other."""

    def __init__(self, address: UnixAddress) -> None:
        self.port = free_port()
        self.refusals: list[Nacked] = []
        self._address = address
        self._stack = AsyncExitStack()
        self.ads = Ads(self._heard, patience=NEVER)

    async def serve(self) -> None:
        await self._stack.enter_async_context(self.ads.serve(self._address))

    async def restart(self, first: Snapshot) -> None:
        """Stop the control plane and start another, which knows nothing of the one before."""
        await self._stack.aclose()
        self.ads = Ads(self._heard, patience=NEVER)
        self.ads.publish(first)
        await self.serve()

    async def stop(self) -> None:
        await self._stack.aclose()

    async def publish(self, *messages: Message, limit: float = LIMIT) -> None:
        """Publish these resources and wait until Envoy has answered for all of them."""
        self.ads.publish(snapshot(*messages))
        await self.answered(limit=limit)

    async def answered(self, *, limit: float = LIMIT) -> None:
        async def holds() -> bool:
            # The stream takes what is published at its next turn.
            await asyncio.sleep(0)
            told = self.ads.programming()
            return isinstance(told, Answered) and not told.pending

        await eventually(holds, limit=limit)

    def _heard(self, event: AdsEvent) -> None:
        if isinstance(event, Nacked):
            self.refusals.append(event)


@asynccontextmanager
async def running(folder: Path, version: Version, *, delta: bool) -> AsyncGenerator[Told]:
    async def forget(_line: Line) -> None:
        pass

    address = UnixAddress(path=str(folder / "xds.sock"))
    bootstrap = json_text(ads_bootstrap(ControlPlane(where=UnixSocket(address.path), delta=delta), node="test"))
    told = Told(address)
    await told.serve()
    try:
        told.ads.publish(Snapshot.of({}))
        async with run_envoy(bootstrap, sink=forget, settings=version.settings()) as envoy:
            await envoy.ready(limit=START_LIMIT)
            yield told
    finally:
        await told.stop()


@pytest.fixture(params=[False, True], ids=["state of the world", "delta"])
def delta(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=VERSIONS, ids=lambda each: each.number)
def version(request: pytest.FixtureRequest) -> Version:
    assert isinstance(request.param, Version)
    return request.param


async def test_a_filter_changes_while_a_connection_goes_on(tmp_path: Path, version: Version, delta: bool) -> None:
    async with running(tmp_path, version, delta=delta) as told:
        await told.publish(listener(told.port), filter_that_answers(201), table(200))
        async with connection(told.port) as opened:
            await opened.become(200, 201)
            await told.publish(listener(told.port), filter_that_answers(202), table(200))
            await opened.become(200, 202)
            await told.publish(listener(told.port), filter_that_answers(203), table(204))
            await opened.become(204, 203)
        assert told.refusals == []


async def test_a_refused_filter_leaves_the_old_one_in_force_and_is_reported(
    tmp_path: Path, version: Version, delta: bool
) -> None:
    async with running(tmp_path, version, delta=delta) as told:
        await told.publish(listener(told.port), filter_that_answers(201), table(200))
        async with connection(told.port) as opened:
            await opened.become(200, 201)
            wrong = TypedExtensionConfig(name=FILTER, typed_config=pack(Router()))
            await told.publish(listener(told.port), wrong, table(204))
            await opened.become(204, 201)
            [refusal] = told.refusals
            assert (refusal.type_url, refusal.names) == (TypeUrl.EXTENSION, (FILTER,))
            programming = told.ads.programming()
            assert isinstance(programming, Answered)
            assert programming.refused == {(TypeUrl.EXTENSION, FILTER): refusal.message}
            await told.publish(listener(told.port), filter_that_answers(202), table(204))
            await opened.become(204, 202)


async def test_a_filter_outlives_its_control_plane_and_follows_the_next(
    tmp_path: Path, version: Version, delta: bool
) -> None:
    async with running(tmp_path, version, delta=delta) as told:
        await told.publish(listener(told.port), filter_that_answers(201), table(200))
        async with connection(told.port) as opened:
            await opened.become(200, 201)
            await told.restart(snapshot(listener(told.port), filter_that_answers(201), table(200)))
            await told.answered()  # Envoy takes its time to come back
            assert await opened.answers() == (200, 201)
            await told.publish(listener(told.port), filter_that_answers(202), table(200))
            await opened.become(200, 202)
        assert told.refusals == []


async def test_a_connection_that_drains_keeps_a_filter_that_is_no_longer_there(
    tmp_path: Path, version: Version, delta: bool
) -> None:
    async with running(tmp_path, version, delta=delta) as told:
        await told.publish(listener(told.port), filter_that_answers(201), table(200))
        async with connection(told.port) as old:
            await old.become(200, 201)
            await told.publish(listener(told.port, filtered=False), table(200))

            async def without() -> bool:
                async with connection(told.port) as new:
                    return await new.answers() == (200, 200)

            await eventually(without)
            assert await old.answers() == (200, 201)
        assert told.refusals == []
