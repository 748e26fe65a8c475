"""The plan of a channel: the filters and the destinations of its calls."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias, assert_never

import grpc
import grpc.aio

from authplane.core.values import dataclass
from authplane.dataplane.config.clusters import Drop
from authplane.dataplane.filters.calls import Call, Code, Metadata, Side, Stop
from authplane.dataplane.routing.channel_targets import drop_category
from authplane.dataplane.runtime.calls.call_gate import ResponseEdits, Rules, new_call
from authplane.dataplane.runtime.channels.call_tokens import NO_TOKENS, UsedTokens
from authplane.dataplane.runtime.connections.channel_pool import Opener, PooledChannel
from authplane.dataplane.runtime.connections.jwt_file import token_sources

_CLIENT: Final = Side.CLIENT
CLOSED: Final = Stop(code=Code.CANCELLED, message="the channel is closed")
BUSY: Final = Stop(code=Code.UNAVAILABLE, message="the cluster has too many concurrent calls (max_requests)")
NOWHERE: Final = Stop(code=Code.UNAVAILABLE, message="the cluster of the call is unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Where the calls of a cluster go."""

    keys: tuple[Hashable, ...]
    """Keys of channels in order of preference."""
    drops: tuple[Drop, ...] = ()
    most: int | None = None
    """Maximum number of calls in progress; None is any number."""

    def are_busy(self, pooled: PooledChannel) -> bool:
        """Tell whether too many calls are in progress on a channel, with the one that has just been added."""
        return self.most is not None and pooled.busy > self.most


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call that may go out: where, and with what."""

    pooled: PooledChannel
    release: Callable[..., None]
    """To be called when the call has ended."""
    timeout: float | None
    metadata: Any
    edits: ResponseEdits | None
    tokens: UsedTokens = NO_TOKENS

    @property
    def sent(self) -> Any:
        """All metadata that goes with the call."""
        return (*self.metadata, *self.pooled.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a channel obeys at the moment."""

    rules: Rules
    clusters: Mapping[str, Backends | Stop]
    draw: Callable[[], float]

    def backends(self, cluster: str) -> Backends | Stop:
        """Return where a call goes; some are dropped on purpose."""
        found = self.clusters.get(cluster, NOWHERE)
        if isinstance(found, Backends) and found.drops:
            category = drop_category(found.drops, (self.draw() for _ in found.drops))
            if category is not None:
                return Stop(code=Code.UNAVAILABLE, message=f"dropped by drop_overloads: {category}")
        return found


State: TypeAlias = Plan | Stop | None
"""What is known: a plan, why there is none, or nothing yet."""


def connectivity_of(state: State, *, closed: bool) -> grpc.ChannelConnectivity:
    """Tell how a channel is: ready when it has a plan."""
    if closed:
        return grpc.ChannelConnectivity.SHUTDOWN
    match state:
        case None:
            return grpc.ChannelConnectivity.CONNECTING
        case Stop():
            return grpc.ChannelConnectivity.TRANSIENT_FAILURE
        case Plan():
            return grpc.ChannelConnectivity.READY
        case _:
            assert_never(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What a channel was made for."""

    target: str
    authority: str | None

    def call(self, method: str, metadata: Metadata, timeout: float | None) -> Call:
        """Return a call as filters see it."""
        return new_call(_CLIENT, method, self.authority, metadata, timeout, None, self.target)


class AlreadyOpen(Opener):
    """A channel that is already open."""

    def __init__(self, channel: Any, credentials: grpc.ChannelCredentials | None) -> None:
        self._channel = channel
        self.tokens = token_sources(credentials)

    def open(self) -> grpc.Channel:
        """Return it."""
        channel: grpc.Channel = self._channel
        return channel

    async def open_aio(self) -> grpc.aio.Channel:
        """Return it."""
        channel: grpc.aio.Channel = self._channel
        return channel


def as_metadata(metadata: Any) -> Metadata:
    """Return metadata as filters see it."""
    return tuple((key, value) for key, value in metadata) if metadata else ()


def shortest(*limits: float | None) -> float | None:
    """Return the least of some limits."""
    return min((each for each in limits if each is not None), default=None)
