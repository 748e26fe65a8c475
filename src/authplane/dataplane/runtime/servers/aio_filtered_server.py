"""A server with an event loop whose filters the program names in code."""

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.local_addresses import parse_bound
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels
from authplane.dataplane.runtime.servers.aio_shutdown import AioEnds, crashed, pause, stop_quietly
from authplane.dataplane.runtime.servers.filtered_ports import FilteredPorts
from authplane.dataplane.runtime.servers.registered_handlers import Registered
from authplane.runtime.child_processes import owned_tasks

_LAST_CALLS: Final = 30.0
"""Seconds that calls have on a server that has ended by itself."""


class AioFilteredServer(AioEnds, FilteredPorts, grpc.aio.Server):
    """A server that runs filters before each call."""

    def __init__(
        self,
        make: Callable[[], grpc.aio.Server],
        gate: Gate,
        side: AioSideChannels,
        handlers: Registered,
        gated: grpc.GenericRpcHandler,
    ) -> None:
        self._make = make
        self._inner = make()
        self._gate = gate
        self._side = side
        self._handlers = handlers
        self._gated = gated
        self._ports: list[tuple[str, grpc.ServerCredentials | None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def start(self) -> None:
        """Begin to serve."""
        self._inner.add_generic_rpc_handlers((self._gated,))
        await self._inner.start()
        # It ends in `stop`, as grpcio's own servers do.
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, and wait until those in progress have ended, at most ``grace`` seconds."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await stop_quietly(self._inner, grace)
        await self._side.close()
        self._ended.set()

    def _bound(self, address: str, credentials: grpc.ServerCredentials | None, port: int) -> int:
        again = f"{address.rpartition(':')[0]}:{port}" if parse_bound(address, port).port else address
        self._ports.append((again, credentials))
        return super()._bound(address, credentials, port)

    async def _keep(self) -> None:
        """Replace a server that ends by itself; its calls may end."""
        async with owned_tasks() as tasks:
            while await crashed(self._inner):
                tasks.create_task(stop_quietly(self._inner, _LAST_CALLS))
                self._inner = await self._replacement()

    async def _replacement(self) -> grpc.aio.Server:
        while True:
            server = self._make()
            server.add_generic_rpc_handlers((self._gated,))
            try:
                for address, credentials in self._ports:
                    if credentials is None:
                        server.add_insecure_port(address)
                    else:
                        server.add_secure_port(address, credentials)
            except RuntimeError:
                # The old one may still be there, if ports are not to be shared.
                await pause()
                continue
            await server.start()
            return server
