"""The xDS server: aggregated discovery in both variants, and gRPC health."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

import grpc
import grpc.aio

from authplane.controlplane.graph.model.programming import (
    Answered,
    NoProxy,
    Programming,
    ServerAnswers,
    without_filters,
)
from authplane.controlplane.serving.runtime.ads_peers import peer_names
from authplane.controlplane.serving.runtime.ads_stream import (
    DELTA,
    SOTW,
    STOPPING,
    AdsEvent,
    Ending,
    Offer,
    Stream,
    Variant,
    Waits,
)
from authplane.core.addresses import is_loopback
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.values import dataclass
from authplane.runtime.servers.grpc_server import Tls, serve_grpc
from authplane.runtime.servers.health import health_service
from authplane.runtime.servers.listen import Address, ListenError, UnixAddress
from authplane.xds.server.node_identity import ALL_NODES, NodeName, NodeRules, Role
from authplane.xds.server.rollout import PATIENCE
from authplane.xds.server.snapshot import Editions, Snapshot
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest, Standing

SERVICE: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a share of its connections
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Envoy pings every 5 seconds; clients that ping more often than this are sent away.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)
_GRACE: Final = 1.0
"""Seconds that streams have to end when the server stops."""

Request = TypeVar("Request", bound=SotwRequest | DeltaRequest)
Response = TypeVar("Response")


class AddressUnprotectedError(ListenError):
    """Other machines could connect, and nothing would ask them who they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How to identify clients with verified certificates."""

    names: NodeName = NodeName.SAN
    """The names of a certificate of which the node id must be one."""
    rules: NodeRules = ALL_NODES


ALL_ENVOYS: Final = Clients()


class _Open(Protocol):
    """A stream of either variant."""

    @property
    def standing(self) -> Standing | None: ...
    @property
    def edition(self) -> Release | None: ...

    def pick(self, editions: Editions) -> Snapshot | None: ...
    def publish(self, snapshot: Snapshot) -> None: ...
    def end(self, ending: Ending) -> None: ...


class Ads:
    """Serves the latest generation to every client; nothing before the first one."""

    def __init__(
        self, sink: Callable[[AdsEvent], None], *, patience: float = PATIENCE, write_limit: float = 30.0
    ) -> None:
        self._sink = sink
        self._clients: Clients | None = None
        self._waits = Waits(patience=patience, write_limit=write_limit)
        self._editions: Editions | None = None
        self._streams: set[_Open] = set()
        self._stopping = False

    def publish(self, editions: Editions) -> None:
        """Bring every client to what is for it in this generation."""
        # All are made before any is sent: if one fails, every client keeps what it has.
        picked = [(stream, stream.pick(editions)) for stream in self._streams]
        self._editions = editions
        for stream, snapshot in picked:
            if snapshot is not None:
                stream.publish(snapshot)

    @asynccontextmanager
    async def serve(
        self, address: Address, tls: Tls | None = None, clients: Clients = ALL_ENVOYS
    ) -> AsyncGenerator[Address]:
        """Serve while the block runs; yields the address with the actual port.

        Raises a `ListenError` if the address is not available, and if other machines could connect without a client
        certificate: the configuration contains private keys. With client certificates, the node id decides what a
        client may get, and the certificate must contain the node id.
        """
        require_protection(address, tls)
        self._clients = clients if tls is not None and tls.client_ca is not None else None
        handlers = [self._discovery(), health_service([SERVICE], serving=self._serving)]

        def build() -> grpc.aio.Server:
            return grpc.aio.server(handlers=handlers, options=_OPTIONS)

        async with serve_grpc(build, address, tls, grace=_GRACE) as bound:
            try:
                yield bound
            finally:
                self._stopping = True
                for stream in self._streams:
                    stream.end(STOPPING)

    def programming(self) -> Programming:
        """Return the answers of all connected clients to the latest generation."""
        standings = [standing for stream in self._streams if (standing := stream.standing) is not None]
        servers = _server_answers([each for each in standings if each.named is not None])
        proxies = [each for each in standings if each.named is None]
        if not proxies:
            return NoProxy(servers)
        return Answered(
            pending=frozenset(without_filters(name) for each in proxies for name in each.pending),
            refused={without_filters(name): words for each in proxies for name, words in each.refused.items()},
            servers=servers,
        )

    def rejected(self) -> int:
        """Count the resources that a connected client rejects."""
        return len({name for each in self._streams if each.standing is not None for name in each.standing.refused})

    def releases(self) -> Counter[str]:
        """Count the connected clients by the release of Envoy whose configuration they get."""
        return Counter(_release_name(each) for each in self._streams if each.standing is not None)

    def oldest(self) -> Release | None:
        """Return the oldest release of Envoy that a client has, or the current one if there is no client.

        None means that a proxy is older than those with native rules, or does not report its release.
        """
        known = [each.edition for each in self._streams if each.edition is not None]
        return min(known, default=CURRENT) if len(known) == len(self._streams) else None

    def _serving(self) -> bool:
        return self._editions is not None and not self._stopping

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
        def admit(node: str) -> Role | str:
            known = self._clients
            return Role.LOCAL if known is None else known.rules.admit(node, peer_names(context, known.names))

        stream = Stream(
            variant, context, self._sink, offer=Offer(published=lambda: self._editions, admit=admit), waits=self._waits
        )
        if self._stopping:
            stream.end(STOPPING)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)


def _release_name(stream: _Open) -> str:
    if stream.standing is not None and stream.standing.named is not None:
        return "grpc"
    return "other" if stream.edition is None else str(stream.edition)


def _server_answers(standings: Sequence[Standing]) -> ServerAnswers:
    return ServerAnswers(
        asked=frozenset(name for each in standings for name in each.named or ()),
        pending=frozenset(name for each in standings for name in each.pending),
        refused={name: words for each in standings for name, words in each.refused.items()},
    )


def require_protection(address: Address, tls: Tls | None) -> None:
    """Raise `AddressUnprotectedError` if other machines can connect and need not show a certificate."""
    local = isinstance(address, UnixAddress) or is_loopback(address.host)
    if not local and (tls is None or tls.client_ca is None):
        raise AddressUnprotectedError(
            f"Refusing to listen on {address} without client certificates. "
            "Use a loopback address, or set --tls-cert-path, --tls-key-path and --tls-ca-path."
        )
