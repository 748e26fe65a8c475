"""The xDS server: aggregated discovery in both variants, and gRPC health."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import grpc

from authplane.io.ads_address import AddressTaken, AdsError, check_address, check_free, socket_path
from authplane.io.ads_stream import DELTA, SOTW, STOPPING, AdsEvent, Ending, Stream, Variant
from authplane.xds.rollout import PATIENCE
from authplane.xds.snapshot import Snapshot

SERVICE: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_HEALTH: Final = "grpc.health.v1.Health"
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a share of its connections
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"
"""``HealthCheckResponse`` with its one field, the status."""

Request = TypeVar("Request")
Response = TypeVar("Response")


class _Open(Protocol):
    """A stream of either variant."""

    def publish(self, snapshot: Snapshot) -> None: ...
    def end(self, ending: Ending) -> None: ...


class Ads:
    """Serves the latest snapshot to every client; nothing before the first one."""

    def __init__(
        self, sink: Callable[[AdsEvent], None], *, patience: float = PATIENCE, write_limit: float = 30.0
    ) -> None:
        self._sink = sink
        self._patience = patience
        self._write_limit = write_limit
        self._snapshot: Snapshot | None = None
        self._streams: set[_Open] = set()
        self._server: grpc.aio.Server | None = None
        self._stopping = False

    def publish(self, snapshot: Snapshot) -> None:
        """Bring every client to this snapshot."""
        self._snapshot = snapshot
        for stream in self._streams:
            stream.publish(snapshot)

    async def serve(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on ``host:port`` or ``unix:/path`` and return the port; `AdsError` says why that is impossible.

        Without credentials only this machine can connect: by a loopback address, or as this user by a socket.
        """
        check_address(address, protected=credentials is not None)
        path = socket_path(address)
        if path is not None:
            await check_free(path)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._discovery(), self._health()))
        port = _bind(server, address, credentials)
        if path is not None:
            path.chmod(0o600)
        await server.start()
        self._server = server
        return port

    async def stop(self, grace: float = 1.0) -> None:
        """End every stream, then the server; what is left after ``grace`` seconds is cut off."""
        self._stopping = True
        for stream in self._streams:
            stream.end(STOPPING)
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    def _discovery(self) -> grpc.GenericRpcHandler:
        async def sotw(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            await self._run(SOTW, context)

        async def delta(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            await self._run(DELTA, context)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(sotw),
                "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(delta),
            },
        )

    async def _run(self, variant: Variant[Request, Response], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        stream = Stream(variant, context, self._sink, patience=self._patience, write_limit=self._write_limit)
        if self._snapshot is not None:
            stream.publish(self._snapshot)
        if self._stopping:
            stream.end(STOPPING)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    def _health(self) -> grpc.GenericRpcHandler:
        # HealthCheckRequest has one field, the name of a service; no name asks about the whole server.
        known = {b"", *(b"\x0a" + bytes([len(name)]) + name.encode() for name in (SERVICE,))}

        async def check(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            if request not in known:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
            return _NOT_SERVING if self._snapshot is None or self._stopping else _SERVING

        return grpc.method_handlers_generic_handler(_HEALTH, {"Check": grpc.unary_unary_rpc_method_handler(check)})


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise AddressTaken(
            f"'{address}' cannot be listened on: it is taken, or not an address of this host."
        ) from error
    if port == 0:
        raise AdsError(f"'{address}' cannot be listened on.")
    return port
