"""An xDS server that knows only the messages: tests say what it answers, and when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb

LIMIT = 5.0
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class AdsCall:
    """One stream of a client."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.metadata = dict(context.invocation_metadata())
        self._done = asyncio.Event()
        self._status = (grpc.StatusCode.OK, "")

    async def read(self) -> pb.DiscoveryRequest:
        async with asyncio.timeout(LIMIT):
            data = await self.context.read()
        assert isinstance(data, bytes), "the client has ended the stream"
        return pb.DiscoveryRequest.FromString(data)

    async def closed(self) -> None:
        """Wait until the client ends the stream."""
        async with asyncio.timeout(LIMIT):
            while isinstance(await self.context.read(), bytes):
                pass

    async def send(self, type_url: str, *resources: bytes, version: str = "1", nonce: str = "n") -> None:
        message = pb.DiscoveryResponse(version_info=version, type_url=type_url, nonce=nonce)
        for body in resources:
            message.resources.add(type_url=type_url, value=body)
        await self.context.write(message.SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        await self.context.write(data)

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        self._status = (code, details)
        self._done.set()

    async def run(self) -> None:
        await self._done.wait()
        code, details = self._status
        if code is not grpc.StatusCode.OK:
            await self.context.abort(code, details)


class ScriptedAds:
    """Hands every stream to the test."""

    def __init__(self) -> None:
        self.port = 0
        self._calls: asyncio.Queue[AdsCall] = asyncio.Queue()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def next(self, limit: float = LIMIT) -> AdsCall:
        async with asyncio.timeout(limit):
            return await self._calls.get()

    @asynccontextmanager
    async def serve(self, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator["ScriptedAds"]:
        """Serve while the block runs, on the same port each time."""

        async def stream(_: object, context: Any) -> None:
            call = AdsCall(context)
            self._calls.put_nowait(call)
            await call.run()

        handler: Any = grpc.stream_stream_rpc_method_handler(stream)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"StreamAggregatedResources": handler}),)
        )
        if credentials is None:
            self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        else:
            self.port = server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)
