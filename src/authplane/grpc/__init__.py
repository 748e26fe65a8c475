"""Creates grpcio servers and channels with filters that are set in code or configured by xDS.

Filters or an xDS bootstrap come in; servers and channels with the interface of grpcio go out. `server` and `channel`
are for programs with threads; `authplane.grpc.aio` has the same functions for event loops.
`docs/how-to/filter-grpc-calls.md` describes them.
"""

import logging
from collections.abc import Iterable, Sequence
from concurrent import futures
from functools import partial
from typing import Any, overload

import grpc as grpcio

from authplane.core.problems import Problem
from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Change,
    Code,
    Flow,
    Metadata,
    Mutation,
    Proceed,
    Side,
    Stop,
    Unanswered,
    Wait,
)
from authplane.dataplane.filters.extauthz.authorize_call import ExtAuthz, FailClosed, FailOpen
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.dataplane.filters.extauthz.service_config.service import GrpcService, SideChannel
from authplane.dataplane.filters.extauthz.wire import ExtAuthzOptions
from authplane.dataplane.filters.headers import Rules
from authplane.dataplane.filters.registry import FilterConfig, FilterType, Packed, Registry, Scope, State, Structured
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.filter_state import Count
from authplane.dataplane.runtime.channels.channel_plan import AlreadyOpen
from authplane.dataplane.runtime.channels.current_plan import ThreadCurrentPlan
from authplane.dataplane.runtime.channels.thread_channel import FilteredChannel, ThreadChannelParts
from authplane.dataplane.runtime.channels.xds_channels import open_xds_channel
from authplane.dataplane.runtime.channels.xds_targets import SCHEME, XdsChannelCredentials
from authplane.dataplane.runtime.connections.channel_pool import ThreadChannelPool
from authplane.dataplane.runtime.connections.dialing import Options
from authplane.dataplane.runtime.connections.jwt_file import jwt_token_file_call_credentials, jwt_token_file_interceptor
from authplane.dataplane.runtime.connections.side_channels import SideChannels, channel_keys
from authplane.dataplane.runtime.servers.registered_handlers import Registered
from authplane.dataplane.runtime.servers.serving_states import NotServing, Serving, ServingState, Told
from authplane.dataplane.runtime.servers.thread_filtered_server import FilteredServer
from authplane.dataplane.runtime.servers.thread_handlers import ThreadGated
from authplane.dataplane.runtime.servers.thread_xds_server import XdsServer
from authplane.dataplane.runtime.servers.xds_ports import XdsServerCredentials
from authplane.dataplane.runtime.xds.csds_service import csds_service
from authplane.dataplane.runtime.xds.find_bootstrap import BootstrapError
from authplane.grpc.filters import ext_authz, filter_from
from authplane.grpc.wiring import (
    TARGET,
    ChannelCredentials,
    ChannelOptions,
    ServerOptions,
    XdsSource,
    filter_registry,
    joined,
)
from authplane.matching.fractions import Fraction

__all__ = (
    "Answered",
    "Ask",
    "BootstrapError",
    "Caching",
    "Call",
    "Change",
    "CheckForm",
    "Code",
    "ExtAuthz",
    "ExtAuthzOptions",
    "FailClosed",
    "FailOpen",
    "FilterConfig",
    "FilterType",
    "FilteredServer",
    "Flow",
    "Fraction",
    "GrpcService",
    "Metadata",
    "Mutation",
    "NotServing",
    "Packed",
    "Problem",
    "Proceed",
    "Registry",
    "Rules",
    "Scope",
    "Serving",
    "ServingState",
    "Shown",
    "Side",
    "SideChannel",
    "State",
    "Stop",
    "Structured",
    "Unanswered",
    "Wait",
    "XdsChannelCredentials",
    "XdsServer",
    "XdsServerCredentials",
    "XdsSource",
    "channel",
    "csds_service",
    "ext_authz",
    "filter_from",
    "filter_registry",
    "jwt_token_file_call_credentials",
    "jwt_token_file_interceptor",
    "server",
)

# Applications opt in to the logs: without this handler, warnings would go to standard error.
logging.getLogger("authplane").addHandler(logging.NullHandler())


@overload
def server(
    thread_pool: futures.ThreadPoolExecutor,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio.ServerInterceptor] | None = None,
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
) -> XdsServer: ...


@overload
def server(
    thread_pool: futures.ThreadPoolExecutor,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio.ServerInterceptor] | None = None,
    options: Options | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpcio.Compression | None = None,
    *,
    filters: Iterable[FilterConfig] = (),
    certificate: bytes | None = None,
    default_authority: str | None = None,
    count: Count | None = None,
) -> FilteredServer: ...


def server(  # noqa: PLR0913, PLR0917 (grpcio's own six, and ours)
    thread_pool: futures.ThreadPoolExecutor,
    handlers: Sequence[grpcio.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpcio.ServerInterceptor] | None = None,
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
) -> FilteredServer | XdsServer:
    """Create a server like ``grpc.server``; filters run on each call before interceptors and handlers.

    ``filters`` apply to every call. With ``xds``, the Listeners of the server's addresses configure the filters, and
    the server accepts connections only while it has a Listener. ``certificate`` is the server's own certificate in PEM
    format, for filters that send it to an authorization service. ``drain`` is the number of seconds that calls on old
    connections may take when TLS changes, when a Listener is removed, and with ``drain_on_change`` when a Listener
    changes; the default is 600. The server calls ``on_serving_state`` when the state of an address changes, and
    ``count`` for metrics. ``registry``, ``on_serving_state``, ``drain`` and ``drain_on_change`` require ``xds``;
    ``filters`` and ``certificate`` exclude it. Raises `TypeError` for other combinations, and `BootstrapError`.
    """
    more = ServerOptions(
        filters=filters, registry=registry, certificate=certificate, default_authority=default_authority,
        on_serving_state=on_serving_state, drain=drain, drain_on_change=drain_on_change, count=count,
    )  # fmt: skip
    registered, side = Registered(handlers), SideChannels()
    build = partial(
        grpcio.server,
        thread_pool,
        options=options,
        maximum_concurrent_rpcs=maximum_concurrent_rpcs,
        compression=compression,
    )

    def gated(gate: Gate) -> ThreadGated:
        return ThreadGated(gate, side, registered, joined(interceptors))

    if xds is not None:
        return XdsServer(more.settings(xds), lambda gate: build(handlers=[gated(gate)]), registered, side)
    gate, named = more.gate()
    side.keep(channel_keys(named))
    return FilteredServer(build(), gate, side, registered, gated(gate))


def channel(  # noqa: PLR0913 (grpcio's own four, and ours)
    target: str,
    credentials: ChannelCredentials = None,
    options: Options | None = None,
    compression: grpcio.Compression | None = None,
    *,
    filters: Iterable[FilterConfig] | None = None,
    xds: XdsSource | None = None,
    registry: Registry | None = None,
    count: Count | None = None,
) -> FilteredChannel:
    """Open a channel; filters run on each call before it is sent, and the caller waits for them.

    ``credentials`` secure the connections to ``target``; None means plaintext. ``filters`` apply to every call. For an
    xDS target such as ``xds:///shop``, the control plane configures filters, endpoints and routes; ``xds`` is the
    bootstrap, by default that of the environment. ``xds`` and ``registry`` require an xDS target, and ``filters``
    excludes it. Raises `TypeError` for other combinations, and `BootstrapError`.
    """
    made = ChannelOptions(
        target=target, credentials=credentials, options=options, compression=compression, filters=filters,
        source=xds, registry=registry, count=count,
    )  # fmt: skip
    if target.startswith(SCHEME):
        return open_xds_channel(made.xds())
    naming, plan, named = made.plan()
    given = made.given
    inner: Any = (
        grpcio.insecure_channel(target, options, compression)
        if given is None
        else grpcio.secure_channel(target, given, options, compression)
    )
    pool, side = ThreadChannelPool(lambda _: AlreadyOpen(inner, given)), SideChannels()
    pool.keep(frozenset({TARGET}))
    side.keep(channel_keys(named))
    return FilteredChannel(
        ThreadChannelParts(
            naming=naming, plan=ThreadCurrentPlan(plan), pool=pool, side=side, close=inner.close, only=inner
        )
    )
