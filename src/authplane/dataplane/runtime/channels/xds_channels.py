"""Channels whose plans come from xDS."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.filters.registry import Kept
from authplane.dataplane.routing.resolver import ClientConfiguration, Failed, Known, Resolution, resolve_client
from authplane.dataplane.routing.resource_types import ResourceTypes
from authplane.dataplane.runtime.calls.filter_state import Count, Teller, filter_state
from authplane.dataplane.runtime.channels.aio_channel import AioChannelParts, AioFilteredChannel
from authplane.dataplane.runtime.channels.channel_plan import Naming, Plan
from authplane.dataplane.runtime.channels.current_plan import AioCurrentPlan, ThreadCurrentPlan
from authplane.dataplane.runtime.channels.thread_channel import FilteredChannel, ThreadChannelParts
from authplane.dataplane.runtime.channels.xds_targets import Reaching, XdsTarget, backend_keys, build_plan, failure
from authplane.dataplane.runtime.connections.channel_pool import AioChannelPool, ThreadChannelPool
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels, SideChannels, channel_keys
from authplane.dataplane.runtime.xds.xds_client import XdsClient, XdsClientThread
from authplane.dataplane.runtime.xds.xds_resolving import Resolving
from authplane.runtime.child_processes import place_of
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap

_log: Final = logging.getLogger("authplane.grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsCalling:
    """What a channel for a target of xDS is made of."""

    target: str
    named: XdsTarget
    bootstrap: Bootstrap
    types: ResourceTypes
    reaching: Reaching
    count: Count | None = None

    @property
    def naming(self) -> Naming:
        """The target and the authority of its calls."""
        return Naming(target=self.target, authority=self.named.authority)

    @property
    def watched(self) -> tuple[Any, ...]:
        """The types of resources that it watches."""
        types = self.types
        return (types.listener, types.routes, types.cluster, types.endpoints)

    def resolve(self, known: Known) -> Resolution[ClientConfiguration]:
        """Resolve the target."""
        return resolve_client(self.named.listener, self.named.authority, known)


class _Plans:
    """Makes plans of configurations; what filters keep is kept."""

    def __init__(
        self,
        calling: XdsCalling,
        publish: Callable[[Plan | Stop], None],
        pool: ThreadChannelPool | AioChannelPool,
        side: SideChannels | AioSideChannels,
    ) -> None:
        self._count = calling.count
        self._set = publish
        self._pool = pool
        self._side = side
        self._tell = Teller()
        self._kept = Kept()

    def publish(self, outcome: ClientConfiguration | Failed) -> None:
        """Obey what is new."""
        if isinstance(outcome, Failed):
            self._set(failure(outcome))
            return
        self._kept = self._kept.next_generation()
        try:
            plan = build_plan(outcome, filter_state(self._count, self._tell, self._kept))
        except Exception as error:  # noqa: BLE001 (to go on with the old plan would be to disobey)
            _log.error("cannot apply configuration: %s", place_of(error))
            self._set(failure(Failed("cannot create the filters")))
            return
        self._set(plan)
        self._pool.keep(backend_keys(plan))
        self._side.keep(channel_keys(outcome))


def open_xds_channel(calling: XdsCalling) -> FilteredChannel:
    """Open a channel for a target of xDS; it begins to ask at once."""
    plan, pool, side = ThreadCurrentPlan(), ThreadChannelPool(calling.reaching.opener), SideChannels()
    client = XdsClientThread(calling.bootstrap, calling.watched, scope=calling.target)
    plans = _Plans(calling, plan.set, pool, side)
    resolving = Resolving(client, calling.types, calling.resolve, plans.publish)
    resolving.settle()

    def close() -> None:
        resolving.end()
        client.close()

    return FilteredChannel(ThreadChannelParts(naming=calling.naming, plan=plan, pool=pool, side=side, close=close))


def open_aio_xds_channel(
    calling: XdsCalling, interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
) -> AioFilteredChannel:
    """Open a channel for a target of xDS; it begins to ask with its first call."""
    plan, pool, side = AioCurrentPlan(), AioChannelPool(calling.reaching.opener), AioSideChannels()
    asking = _Asking(calling, _Plans(calling, plan.set, pool, side))
    return AioFilteredChannel(
        AioChannelParts(
            naming=calling.naming,
            plan=plan,
            pool=pool,
            side=side,
            interceptors=interceptors,
            begin=asking.begin,
            close=asking.end,
        )
    )


class _Asking:
    """Asks the control plane, on the event loop of the first call."""

    def __init__(self, calling: XdsCalling, plans: _Plans) -> None:
        self._calling = calling
        self._plans = plans
        self._client: XdsClient | None = None
        self._resolving: Resolving[ClientConfiguration] | None = None
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, if that has not happened yet."""
        if self._client is not None:
            return
        calling = self._calling
        self._client = XdsClient(calling.bootstrap, calling.watched, scope=calling.target)
        self._resolving = Resolving(self._client, calling.types, calling.resolve, self._plans.publish)
        self._resolving.settle()
        # It ends with the channel.
        self._running = asyncio.get_running_loop().create_task(self._client.run())

    async def end(self) -> None:
        """Ask no more."""
        if self._client is None or self._resolving is None or self._running is None:
            return
        self._resolving.end()
        self._client.stop()
        await self._running
