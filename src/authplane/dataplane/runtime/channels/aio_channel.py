"""A channel with filters for event loops; `thread_channel` explains why there are two kinds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

import grpc
import grpc.aio

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.calls.drivers import drive_on_loop, effect_on_loop
from authplane.dataplane.runtime.channels.bind_call import (
    AskedCall,
    AwaitPlan,
    Binding,
    Step,
    TakeChannel,
    bind_call,
)
from authplane.dataplane.runtime.channels.call_tokens import AwaitToken
from authplane.dataplane.runtime.channels.channel_plan import BoundCall, Naming
from authplane.dataplane.runtime.channels.current_plan import AioCurrentPlan
from authplane.dataplane.runtime.channels.edited_calls import EditedAioCall
from authplane.dataplane.runtime.connections.call_kinds import MakesCalls, Method, interceptors_of, named
from authplane.dataplane.runtime.connections.channel_pool import AioChannelPool
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.failed_call import aio_failure
from authplane.dataplane.runtime.connections.jwt_aio import ended_with, token_of
from authplane.dataplane.runtime.connections.jwt_calls import LATE
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels

_NOBODY: Final = "ipv4:127.0.0.1:1"
"""Where nothing is ever sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AioChannelParts:
    """What a channel is made of."""

    naming: Naming
    plan: AioCurrentPlan
    pool: AioChannelPool
    side: AioSideChannels
    interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    """Those of the user: they see calls before filters do."""
    begin: Callable[[], None] = lambda: None
    """Called before the first call: there may be something to start on the event loop."""
    close: Callable[[], Awaitable[None]] | None = None
    only: grpc.aio.Channel | None = None
    """The channel that all calls go to, if that is always the same one."""


class _Waiting(NamedTuple):
    """A call that has to wait before it is known where it goes."""

    steps: Binding
    step: Step
    """What it waits for."""
    deadline: Deadline


_Begun: TypeAlias = BoundCall | Stop | _Waiting


class _Started(NamedTuple):
    """A call that ``stand_in`` makes."""

    method: Method
    options: dict[str, Any]
    begun: Stop | _Waiting | None
    """How far it is; None if interceptors see it first."""


class AioFilteredChannel(MakesCalls, grpc.aio.Channel):
    """Runs filters on every call, then sends it on the channel of its route."""

    def __init__(self, parts: AioChannelParts) -> None:
        self.parts = parts
        # Its interceptors wait where a call may not: it must be there at once. Nothing is ever sent over it.
        self._stand_in = grpc.aio.insecure_channel(
            _NOBODY, interceptors=[*parts.interceptors, *interceptors_of(self._go)]
        )
        self._under_way = 0
        self._idle = asyncio.Event()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Tell how the channel is; one that may lead anywhere is ready when it knows where calls go."""
        if self.parts.only is not None:
            return self.parts.only.get_state(try_to_connect)
        if try_to_connect:
            self.parts.begin()
        return self.parts.plan.connectivity

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the channel is otherwise."""
        if self.parts.only is not None:
            await self.parts.only.wait_for_state_change(last_observed_state)
            return
        while self.parts.plan.connectivity is last_observed_state:
            await self.parts.plan.changed()

    async def channel_ready(self) -> None:
        """Wait until the channel is ready."""
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel; calls in progress have ``grace`` seconds to finish."""
        self.parts.plan.close()
        deadline = Deadline(grace)
        await self._stand_in.close(grace)
        if grace is not None and self._under_way:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline.left()):
                    await self._idle.wait()
        await self.parts.pool.close()
        await self.parts.side.close()
        if self.parts.close is not None:
            await self.parts.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()

    def _multi(self, method: Method) -> "_Multi":
        return _Multi(self, method, method.of(self._stand_in))

    def begin(self, asked: AskedCall, timeout: float | None) -> _Begun:
        """Run the filters of a call and select its channel, as far as nothing has to be awaited."""
        parts, deadline = self.parts, Deadline(timeout)
        steps = bind_call(parts.naming, parts.plan, parts.pool, asked, deadline)
        try:
            return _Waiting(steps, next(steps), deadline)
        except StopIteration as finished:
            found: BoundCall | Stop = finished.value
            return found

    def start(self, method: Method, bound: BoundCall, request: Any, options: dict[str, Any]) -> Any:
        """Send a call after its filters."""
        try:
            call = method.on(bound.pooled)(request, **{**options, "timeout": bound.timeout, "metadata": bound.sent})
        except BaseException:
            bound.release()
            raise
        self._under_way += 1

        def ended(call: Any) -> None:
            bound.release()
            if bound.tokens.pairs:
                bound.tokens.ended(ended_with(call))
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

        call.add_done_callback(ended)
        return call if bound.edits is None else EditedAioCall(call, bound.edits)

    async def _go(self, _: Any, details: Any, request: Any) -> Any:
        """Make a call, as the last of its interceptors: those of the user have had their say."""
        method, options, begun = _started.get()
        if begun is None:
            path = details.method.decode() if isinstance(details.method, bytes) else details.method
            asked = AskedCall(path, details.metadata, details.credentials, bool(details.wait_for_ready))
            found = self.begin(asked, details.timeout)
        else:
            found = begun
        if isinstance(found, _Waiting):
            found = await self._wait(found)
        if isinstance(found, Stop):
            raise aio_failure(found)
        # Interceptors may have changed these.
        changed = {"credentials": details.credentials, "wait_for_ready": details.wait_for_ready}
        return self.start(method, found, request, {**options, **changed})

    async def _wait(self, waiting: _Waiting) -> BoundCall | Stop:
        try:
            async with asyncio.timeout(waiting.deadline.left()):
                return await drive_on_loop(waiting.steps, self._take, waiting.step)
        except TimeoutError:
            return LATE

    def _take(self, step: Step) -> Awaitable[Any]:
        parts = self.parts
        match step:
            case AwaitPlan(patient):
                return parts.plan.wait(patient=patient)
            case TakeChannel(key):
                return parts.pool.take(key)
            case AwaitToken(source):
                return token_of(source)
            case _:
                return effect_on_loop(step, parts.side)


@dataclass(frozen=True, slots=True)
class _Multi:
    """Makes calls of one method."""

    channel: AioFilteredChannel
    method: Method
    stand_in: Any

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Make a call."""
        given = named(dict(zip(_NAMES, arguments, strict=False)) | options)
        if "request" not in given and self.method.kind.startswith("unary"):
            raise TypeError("The argument 'request' is missing. Pass the request message.")
        request = given.pop("request", None)
        if self.channel.parts.plan.closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self.channel.parts.begin()
        begun: _Begun | None = None
        # Call credentials need `stand_in` as well: grpcio fails such a call on a channel without TLS at once.
        if not self.channel.parts.interceptors and given.get("credentials") is None:
            asked = AskedCall(self.method.path, given.get("metadata"), None, bool(given.get("wait_for_ready")))
            begun = self.channel.begin(asked, given.get("timeout"))
        if isinstance(begun, BoundCall):
            return self.channel.start(self.method, begun, request, given)
        token = _started.set(_Started(self.method, given, begun))
        # It would make a header of it, which is for the call itself to do.
        passed = {name: value for name, value in given.items() if name != "compression"}
        try:
            return self.stand_in(request, **passed)
        finally:
            _started.reset(token)


_NAMES: Final = ("request", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
_started: ContextVar[_Started] = ContextVar("_started")
