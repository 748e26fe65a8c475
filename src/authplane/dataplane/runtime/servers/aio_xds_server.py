"""A server with an event loop that xDS configures; `xds_server` decides what it does."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, assert_never

import grpc
import grpc.aio

from authplane.dataplane.routing.resolver import Failed, ServerConfiguration
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.drivers import drive_on_loop
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels
from authplane.dataplane.runtime.servers.aio_shutdown import AioEnds, crashed, stop_quietly
from authplane.dataplane.runtime.servers.registered_handlers import Registered
from authplane.dataplane.runtime.servers.xds_ports import Port
from authplane.dataplane.runtime.servers.xds_server import (
    ConfiguredServer,
    DiscardServer,
    DrainServer,
    StartServer,
    Step,
    XdsSettings,
)
from authplane.dataplane.runtime.xds.xds_client import XdsClient
from authplane.runtime.child_processes import owned_tasks, place_of

_log: Final = logging.getLogger("authplane.grpc")
_NO_AUTHORITY: Final = (
    "grpcio does not pass the authority of calls to asynchronous servers, so only virtual hosts with domain * match;"
    " set default_authority to match others"
)


class AioXdsServer(AioEnds, ConfiguredServer[grpc.aio.Server], grpc.aio.Server):
    """Listens where and as long as its Listeners say so; one task applies updates, one after the other."""

    def __init__(
        self,
        settings: XdsSettings,
        make: Callable[[Gate], grpc.aio.Server],
        handlers: Registered,
        side: AioSideChannels,
    ) -> None:
        super().__init__(settings, make, handlers, side)
        self._side = side
        self._old: set[grpc.aio.Server] = set()
        self._client: XdsClient | None = None
        self._changes: asyncio.Queue[tuple[Port, ServerConfiguration | Failed] | None] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._ended = asyncio.Event()

    async def start(self) -> None:
        """Start to watch the Listeners. The server accepts connections as soon as they arrive."""
        self._require_unstarted("The server is already started. Create a new server.")
        if self._settings.default_authority is None:
            _log.warning(_NO_AUTHORITY)
        self._client = client = XdsClient(self._settings.bootstrap, self._settings.watched)
        self._addresses.watch(client, self._heed)
        # It ends in `stop`, as grpcio's own servers do.
        self._running = asyncio.create_task(self._run(client))

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, and wait until those in progress have ended, at most ``grace`` seconds."""
        self._stopping = True
        self._addresses.watch_no_more()
        if self._client is not None:
            self._client.stop()
        self._changes.put_nowait(None)
        async with owned_tasks() as tasks:
            for server in (*self._servers.values(), *self._old):
                tasks.create_task(stop_quietly(server, grace))
        if self._running is not None:
            await self._running
        self._addresses.give_up()
        await self._side.close()
        self._ended.set()

    @property
    def xds_client(self) -> XdsClient | None:
        """What watches the resources, for those who debug; None before the start."""
        return self._client

    async def wait_until_serving(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 (as that of threads)
        """Wait until it serves at all of its addresses; returns whether it does."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(self._addresses.are_served)
        except TimeoutError:
            return False
        return True

    def _require_unstarted(self, message: str) -> None:
        if self._client is not None:
            raise grpc.aio.UsageError(message)

    async def _run(self, client: XdsClient) -> None:
        async with owned_tasks() as tasks:
            tasks.create_task(client.run())
            while (change := await self._changes.get()) is not None:
                try:
                    await self._apply(*change, tasks)
                except Exception as error:  # noqa: BLE001 (what comes next must be applied in any case)
                    _log.error("cannot apply configuration: %s", place_of(error))

    def _heed(self, port: Port, outcome: ServerConfiguration | Failed) -> None:
        """Apply new rules to calls at once; connections follow later."""
        if self._stopping:
            return
        outcome = self._addresses.heed(port, outcome)
        self._changes.put_nowait((port, outcome))

    async def _apply(self, port: Port, outcome: ServerConfiguration | Failed, tasks: asyncio.TaskGroup) -> None:
        if self._stopping:
            return
        before = self._servers.get(port.address)
        state = await drive_on_loop(self._serving(port, outcome), lambda step: self._take(step, tasks))
        server = self._servers.get(port.address)
        if server is not None and server is not before:
            tasks.create_task(self._look_after(port, server))
        if self._stopping:
            return
        self._addresses.change_state(port, state)
        async with self._changed:
            self._changed.notify_all()

    async def _take(self, step: Step[grpc.aio.Server], tasks: asyncio.TaskGroup) -> None:
        match step:
            case StartServer(server):
                await server.start()
            case DrainServer(server):
                self._old.add(server)
                tasks.create_task(self._drain(server))
                # The server must not listen any more when its end is reported.
                await asyncio.sleep(0)
            case DiscardServer(server):
                await stop_quietly(server, None)
            case _:
                assert_never(step)

    async def _look_after(self, port: Port, server: grpc.aio.Server) -> None:
        if await crashed(server) and self._servers.get(port.address) is server and port.configuration is not None:
            port.met = None
            self._changes.put_nowait((port, port.configuration))

    async def _drain(self, server: grpc.aio.Server) -> None:
        try:
            await stop_quietly(server, self._settings.drain)
        finally:
            self._old.discard(server)
