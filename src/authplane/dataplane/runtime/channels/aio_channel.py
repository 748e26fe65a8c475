"""A channel of an event loop whose calls filters judge."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Code, Stop
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.runtime.calls.call_gate import STATUSES, concluded, edits_of, trailers_of
from authplane.dataplane.runtime.calls.filter_drivers import VERDICTS, judge_at_once, judge_on_loop
from authplane.dataplane.runtime.channels.call_tokens import needed_by, tokens_for
from authplane.dataplane.runtime.channels.channel_plan import (
    BUSY,
    CLOSED,
    LATE,
    Backends,
    Bound,
    Naming,
    Plan,
    State,
    as_metadata,
    connectivity_of,
    shortest,
)
from authplane.dataplane.runtime.channels.edited_calls import EditedAioCall
from authplane.dataplane.runtime.connections.call_kinds import MakesCalls, Method, interceptors_of, named
from authplane.dataplane.runtime.connections.channel_pool import AioLines, Line
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError
from authplane.dataplane.runtime.connections.failed_call import aio_failure
from authplane.dataplane.runtime.connections.jwt_aio import ended_with
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels
from authplane.runtime.clock import stopwatch

_NOBODY: Final = "ipv4:127.0.0.1:1"
"""Where nothing is ever sent."""


class AioCourse:
    """What a channel obeys; calls wait for the first plan."""

    def __init__(self, state: State = None) -> None:
        self.state = state
        self.closed = False
        self._changed = asyncio.Event()

    @property
    def connectivity(self) -> grpc.ChannelConnectivity:
        """How the channel is: ready when it has a plan."""
        return connectivity_of(self.state, closed=self.closed)

    def set(self, state: State) -> None:
        """Obey something else from now on."""
        self.state = state
        self._notify()

    def close(self) -> None:
        """End all waiting."""
        self.closed = True
        self._notify()

    async def changed(self) -> None:
        """Wait for a change."""
        await self._changed.wait()

    async def plan(self, *, patient: bool) -> Plan | Stop:
        """Return the plan; a call that is patient waits for one even if there is a reason why there is none."""
        while not self.closed:
            state = self.state
            if isinstance(state, Plan) or (state is not None and not patient):
                return state
            await self.changed()
        return CLOSED

    def _notify(self) -> None:
        # Whoever waits now is woken; whoever comes later waits for the next change.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class AioParts:
    """What a channel is made of."""

    naming: Naming
    course: AioCourse
    lines: AioLines
    side: AioSideChannels
    interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    """Those of the user: they see calls before filters do."""
    begin: Callable[[], None] = lambda: None
    """Called before the first call: there may be something to start on the event loop."""
    close: Callable[[], Awaitable[None]] | None = None
    only: grpc.aio.Channel | None = None
    """The channel that all calls go to, if that is always the same one."""


class AioFilteredChannel(MakesCalls, grpc.aio.Channel):
    """Judges every call, then lets the channel make it to which the call's route leads."""

    def __init__(self, parts: AioParts) -> None:
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
        return self.parts.course.connectivity

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the channel is otherwise."""
        if self.parts.only is not None:
            await self.parts.only.wait_for_state_change(last_observed_state)
            return
        while self.parts.course.connectivity is last_observed_state:
            await self.parts.course.changed()

    async def channel_ready(self) -> None:
        """Wait until the channel is ready."""
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """End the channel and all of its calls; those under way have so many seconds."""
        self.parts.course.close()
        elapsed = stopwatch()
        await self._stand_in.close(grace)
        if grace is not None and self._under_way:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(grace - elapsed(), 0.0)):
                    await self._idle.wait()
        await self.parts.lines.close()
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

    def bind_now(self, method: str, timeout: float | None, metadata: Any) -> Bound | None:
        """Tell where a call goes if there is nothing to wait for, nothing to draw, and nobody to judge it."""
        parts = self.parts
        parts.begin()
        plan = parts.course.state
        if not isinstance(plan, Plan) or parts.course.closed or parts.interceptors or not plan.rules.passes:
            return None
        routed = plan.rules.route(parts.naming.call(method, (), timeout))
        backends = plan.clusters.get(routed.cluster)
        if not isinstance(backends, Backends) or backends.drops or len(backends.keys) > 1:
            return None
        key = backends.keys[0]
        line = parts.lines.take_now(key)
        if line is None:
            return None
        if backends.are_busy(line) or line.tokens:
            parts.lines.release(key, line)
            return None
        return Bound(
            line, lambda *_: parts.lines.release(key, line), shortest(timeout, routed.longest), metadata or (), None
        )

    def start(self, method: Method, bound: Bound, request: Any, options: dict[str, Any]) -> Any:
        """Make a call that was judged."""
        try:
            call = method.on(bound.line)(request, **{**options, "timeout": bound.timeout, "metadata": bound.sent})
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
        method, options = _started.get()
        bound = await self._bind(details)
        # Interceptors may have changed these.
        changed = {"credentials": details.credentials, "wait_for_ready": details.wait_for_ready}
        return self.start(method, bound, request, {**options, **changed})

    async def _bind(self, details: grpc.aio.ClientCallDetails) -> Bound:
        """Let filters judge a call and tell where it goes; raises how it fails."""
        elapsed = stopwatch()
        timeout = details.timeout
        try:
            async with asyncio.timeout(timeout):
                found = await self._find(details, elapsed)
        except TimeoutError:
            found = LATE
        if isinstance(found, Stop):
            raise aio_failure(STATUSES[found.code], found.message, trailers_of(found))
        left = None if timeout is None else timeout - elapsed()
        if left is not None and left <= 0:
            found.release()
            raise aio_failure(STATUSES[LATE.code], LATE.message)
        return replace(found, timeout=shortest(left, found.timeout))

    async def _find(self, details: grpc.aio.ClientCallDetails, elapsed: Callable[[], float]) -> Bound | Stop:
        parts = self.parts
        plan = await parts.course.plan(patient=bool(details.wait_for_ready))
        if isinstance(plan, Stop):
            return plan
        method: Any = details.method
        path = method.decode() if isinstance(method, bytes) else method
        left = None if details.timeout is None else max(details.timeout - elapsed(), 0.0)
        call = parts.naming.call(path, as_metadata(details.metadata), left)
        routed = plan.rules.route(call)
        flow = run_chain(routed.filters, call)
        verdict = judge_at_once(flow)
        if not isinstance(verdict, VERDICTS):
            verdict = await judge_on_loop(flow, verdict, parts.side)
        verdict = concluded(verdict, routed)
        if isinstance(verdict, Stop):
            return verdict
        backends = plan.backends(routed.cluster)
        taken = backends if isinstance(backends, Stop) else await self._take(backends)
        if isinstance(taken, Stop):
            return taken
        return await self._with_tokens(
            Bound(*taken, routed.longest, verdict.metadata, edits_of(verdict)), details.credentials
        )

    async def _with_tokens(self, bound: Bound, credentials: grpc.CallCredentials | None) -> Bound | Stop:
        sources = needed_by(bound.line, credentials)
        if not sources:
            return bound
        try:
            tokens = await tokens_for(sources)
        except BaseException:
            bound.release()
            raise
        if isinstance(tokens, Stop):
            bound.release()
            return tokens
        return replace(bound, tokens=tokens)

    async def _take(self, backends: Backends) -> tuple[Line, Callable[..., None]] | Stop:
        """Begin to use the first line that is not known to be broken; if all are, the first."""
        lines, chosen = self.parts.lines, backends.keys[0]
        try:
            for key in backends.keys if len(backends.keys) > 1 else ():
                line = await lines.take(key)
                broken = (
                    line is None
                    or line.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.TRANSIENT_FAILURE
                )
                if line is not None:
                    lines.release(key, line)
                if not broken:
                    chosen = key
                    break
            line = await lines.take(chosen)
        except CredentialsUnusableError as error:
            return Stop(code=Code.UNAVAILABLE, message=str(error))
        if line is None:
            return CLOSED
        if backends.are_busy(line):
            lines.release(chosen, line)
            return BUSY
        return line, lambda *_: lines.release(chosen, line)


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
            raise TypeError("a call with one request needs that request")
        request = given.pop("request", None)
        if self.channel.parts.course.closed:
            raise grpc.aio.UsageError("Channel is closed.")
        bound = None
        if given.get("credentials") is None:
            bound = self.channel.bind_now(self.method.path, given.get("timeout"), given.get("metadata"))
        if bound is not None:
            return self.channel.start(self.method, bound, request, given)
        token = _started.set((self.method, given))
        # It would make a header of it, which is for the call itself to do.
        passed = {name: value for name, value in given.items() if name != "compression"}
        try:
            return self.stand_in(request, **passed)
        finally:
            _started.reset(token)


_NAMES: Final = ("request", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
_started: ContextVar[tuple[Method, dict[str, Any]]] = ContextVar("_started")
