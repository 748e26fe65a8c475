"""Creates ``grpc.aio`` servers and channels with filters that are set in code or configured by xDS.

The signatures repeat those of `authplane.grpc` for type checkers and readers; `wiring` has the shared code.
"""

from collections.abc import Iterable, Sequence
from concurrent import futures
from functools import partial
from typing import Any, overload

import grpc as grpcio
import grpc.aio as grpcio_aio

from authplane.dataplane.filters.registry import FilterConfig, Registry
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.filter_state import Count
from authplane.dataplane.runtime.channels.aio_channel import AioChannelParts, AioFilteredChannel
from authplane.dataplane.runtime.channels.channel_plan import AlreadyOpen
from authplane.dataplane.runtime.channels.current_plan import AioCurrentPlan
from authplane.dataplane.runtime.channels.xds_channels import open_aio_xds_channel
from authplane.dataplane.runtime.channels.xds_targets import SCHEME
from authplane.dataplane.runtime.connections.channel_pool import AioChannelPool
from authplane.dataplane.runtime.connections.dialing import Options
from authplane.dataplane.runtime.connections.jwt_file import jwt_token_file_interceptors
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels, channel_keys
from authplane.dataplane.runtime.servers.aio_filtered_server import AioFilteredServer
from authplane.dataplane.runtime.servers.aio_handlers import AioGated
from authplane.dataplane.runtime.servers.aio_xds_server import AioXdsServer
from authplane.dataplane.runtime.servers.registered_handlers import Registered
from authplane.dataplane.runtime.servers.serving_states import Told
from authplane.dataplane.runtime.xds.csds_service import aio_csds_service as csds_service
from authplane.grpc.wiring import (
    TARGET,
    ChannelCredentials,
    ChannelOptions,
    ServerOptions,
    XdsSource,
    joined,
)

__all__ = (
    "AioFilteredChannel",
    "AioFilteredServer",
    "AioXdsServer",
    "channel",
    "csds_service",
    "jwt_token_file_interceptors",
    "server",
)


@overload
def server(
    migration_thread_pool: futures.Executor | None = None,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio_aio.ServerInterceptor] | None = None,
    options: Options | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpcio.Compression | None = None,
    *,
    xds: XdsSource,
    registry: Registry | None = None,
    default_authority: str | None = None,
    on_serving_state: Told | None = None,
    drain: float = 600.0,
    drain_on_change: bool = False,
    count: Count | None = None,
) -> AioXdsServer: ...


@overload
def server(
    migration_thread_pool: futures.Executor | None = None,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio_aio.ServerInterceptor] | None = None,
    options: Options | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpcio.Compression | None = None,
    *,
    filters: Iterable[FilterConfig] = (),
    certificate: bytes | None = None,
    default_authority: str | None = None,
    count: Count | None = None,
) -> AioFilteredServer: ...


def server(  # noqa: PLR0913, PLR0917 (grpcio's own six, and ours)
    migration_thread_pool: futures.Executor | None = None,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio_aio.ServerInterceptor] | None = None,
    options: Options | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpcio.Compression | None = None,
    *,
    filters: Iterable[FilterConfig] | None = None,
    xds: XdsSource | None = None,
    registry: Registry | None = None,
    certificate: bytes | None = None,
    default_authority: str | None = None,
    on_serving_state: Told | None = None,
    drain: float | None = None,
    drain_on_change: bool = False,
    count: Count | None = None,
) -> AioFilteredServer | AioXdsServer:
    """Create a server like ``grpc.aio.server``; the other arguments are those of `authplane.grpc.server`.

    grpcio does not pass the authority of calls to asynchronous servers: ``default_authority`` replaces it. Without it,
    only virtual hosts with the domain ``*`` match.
    """
    more = ServerOptions(
        filters=filters, registry=registry, certificate=certificate, default_authority=default_authority,
        on_serving_state=on_serving_state, drain=drain, drain_on_change=drain_on_change, count=count,
    )  # fmt: skip
    registered, side = Registered(handlers), AioSideChannels()
    build = partial(
        grpcio_aio.server,
        migration_thread_pool,
        options=options,
        maximum_concurrent_rpcs=maximum_concurrent_rpcs,
        compression=compression,
    )

    def gated(gate: Gate) -> AioGated:
        return AioGated(gate, side, registered, joined(interceptors), migration_thread_pool)

    if xds is not None:
        return AioXdsServer(more.settings(xds), lambda gate: build(handlers=(gated(gate),)), registered, side)
    gate, named = more.gate()
    side.keep(channel_keys(named))
    return AioFilteredServer(build, gate, side, registered, gated(gate))


def channel(  # noqa: PLR0913 (grpcio's own five, and ours)
    target: str,
    credentials: ChannelCredentials = None,
    options: Options | None = None,
    compression: grpcio.Compression | None = None,
    interceptors: Sequence[grpcio_aio.ClientInterceptor] | None = None,
    *,
    filters: Iterable[FilterConfig] | None = None,
    xds: XdsSource | None = None,
    registry: Registry | None = None,
    count: Count | None = None,
) -> AioFilteredChannel:
    """Open a channel like `authplane.grpc.channel`, for event loops.

    ``interceptors`` run before filters.
    """
    made = ChannelOptions(
        target=target, credentials=credentials, options=options, compression=compression, filters=filters,
        source=xds, registry=registry, count=count,
    )  # fmt: skip
    if target.startswith(SCHEME):
        return open_aio_xds_channel(made.xds(), joined(interceptors))
    naming, plan, named = made.plan()
    given = made.given
    inner: Any = (
        grpcio_aio.insecure_channel(target, options, compression)
        if given is None
        else grpcio_aio.secure_channel(target, given, options, compression)
    )
    pool, side = AioChannelPool(lambda _: AlreadyOpen(inner, given)), AioSideChannels()
    pool.keep(frozenset({TARGET}))
    side.keep(channel_keys(named))
    return AioFilteredChannel(
        AioChannelParts(
            naming=naming,
            plan=AioCurrentPlan(plan),
            pool=pool,
            side=side,
            interceptors=joined(interceptors),
            close=inner.close,
            only=inner,
        )
    )
