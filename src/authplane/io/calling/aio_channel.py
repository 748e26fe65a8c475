"""A channel of an event loop whose calls filters judge."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio

from authplane.filters.calls import Code, Proceed, Stop
from authplane.filters.chain import run_chain
from authplane.io.calling.edited_calls import EditedAioCall
from authplane.io.calling.plan import CLOSED, LATE, Backends, Naming, Plan, State, as_metadata, shortest
from authplane.io.clock import stopwatch
from authplane.io.dialing import CredentialsUnusableError
from authplane.io.failed_call import aio_failure
from authplane.io.interceptors.gate import STATUSES, ResponseEdits, concluded, edits_of, trailers_of
from authplane.io.interceptors.judging import judge_at_once, judge_on_loop
from authplane.io.lines import AioLines, Line
from authplane.io.side_channels import AioSideChannels

_BUSY: Final = Stop(code=Code.UNAVAILABLE, message="too many calls are under way to this cluster")
_STATES: Final = grpc.ChannelConnectivity
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
        if self.closed:
            return _STATES.SHUTDOWN
        match self.state:
            case None:
                return _STATES.CONNECTING
            case Stop():
                return _STATES.TRANSIENT_FAILURE
            case Plan():
                return _STATES.READY

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


@dataclass(frozen=True, slots=True)
class _Bound:
    """A call that may go out: where, and with what."""

    line: Line
    release: Callable[[Any], None]
    timeout: float | None
    metadata: Any
    edits: ResponseEdits | None


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


class AioFilteredChannel(grpc.aio.Channel):
    """Judges every call, then lets the channel make it to which the call's route leads."""

    def __init__(self, parts: AioParts) -> None:
        self.parts = parts
        ours = (_UnaryUnary(self), _UnaryStream(self), _StreamUnary(self), _StreamStream(self))
        # Its interceptors wait where a call may not: it must be there at once. Nothing is ever sent over it.
        self._stand_in = grpc.aio.insecure_channel(_NOBODY, interceptors=[*parts.interceptors, *ours])

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return self._multi("unary_unary", method, request_serializer, response_deserializer)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return self._multi("unary_stream", method, request_serializer, response_deserializer)

    def stream_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return self._multi("stream_unary", method, request_serializer, response_deserializer)

    def stream_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return self._multi("stream_stream", method, request_serializer, response_deserializer)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Tell how the channel is; it is ready when it knows where calls go."""
        if try_to_connect:
            self.parts.begin()
        return self.parts.course.connectivity

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the channel is otherwise."""
        while self.parts.course.connectivity is last_observed_state:
            await self.parts.course.changed()

    async def channel_ready(self) -> None:
        """Wait until the channel is ready."""
        while (state := self.get_state(try_to_connect=True)) is not _STATES.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """End the channel and all of its calls."""
        self.parts.course.close()
        await self._stand_in.close(grace)
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

    def _multi(self, kind: str, method: str, serialize: Any, deserialize: Any) -> "_Multi":
        stand_in = getattr(self._stand_in, kind)(method, serialize, deserialize)
        return _Multi(self, kind, method, serialize, deserialize, stand_in)

    def bind_now(self, method: str, timeout: float | None, metadata: Any) -> _Bound | None:
        """Tell where a call goes if there is nothing to wait for, and nobody to judge it."""
        parts = self.parts
        parts.begin()
        plan = parts.course.state
        if not isinstance(plan, Plan) or parts.course.closed or parts.interceptors or not plan.rules.passes:
            return None
        routed = plan.rules.route(parts.naming.call(method, (), timeout))
        backends = plan.backends(routed.cluster)
        if isinstance(backends, Stop) or len(backends.keys) > 1:
            return None
        key = backends.keys[0]
        line = parts.lines.take_now(key)
        if line is None:
            return None
        if backends.most is not None and line.busy > backends.most:
            parts.lines.release(key, line)
            return None
        return _Bound(
            line, lambda _: parts.lines.release(key, line), shortest(timeout, routed.longest), metadata or (), None
        )

    async def bind(self, details: grpc.aio.ClientCallDetails) -> _Bound:
        """Let filters judge a call and tell where it goes; raises how it fails."""
        elapsed = stopwatch()
        timeout = details.timeout
        try:
            async with asyncio.timeout(timeout):
                found = await self._find(details)
        except TimeoutError:
            found = LATE
        if isinstance(found, Stop):
            raise aio_failure(STATUSES[found.code], found.message, trailers_of(found))
        left = None if timeout is None else max(timeout - elapsed(), 0.0)
        return _Bound(found.line, found.release, shortest(left, found.timeout), found.metadata, found.edits)

    async def _find(self, details: grpc.aio.ClientCallDetails) -> _Bound | Stop:
        parts = self.parts
        plan = await parts.course.plan(patient=bool(details.wait_for_ready))
        if isinstance(plan, Stop):
            return plan
        method: Any = details.method
        path = method.decode() if isinstance(method, bytes) else method
        call = parts.naming.call(path, as_metadata(details.metadata), details.timeout)
        routed = plan.rules.route(call)
        flow = run_chain(routed.filters, call)
        begun = judge_at_once(flow)
        if not isinstance(begun, Proceed | Stop):
            begun = await judge_on_loop(flow, begun, parts.side)
        verdict = concluded(begun, routed)
        if isinstance(verdict, Stop):
            return verdict
        backends = plan.backends(routed.cluster)
        taken = backends if isinstance(backends, Stop) else await self._take(backends)
        if isinstance(taken, Stop):
            return taken
        return _Bound(*taken, routed.longest, verdict.metadata, edits_of(verdict))

    async def _take(self, backends: Backends) -> tuple[Line, Callable[[Any], None]] | Stop:
        """Begin to use the first line that is not known to be broken; if all are, the first."""
        lines, chosen = self.parts.lines, backends.keys[0]
        try:
            for key in backends.keys if len(backends.keys) > 1 else ():
                line = await lines.take(key)
                broken = line is None or line.channel.get_state(try_to_connect=True) is _STATES.TRANSIENT_FAILURE
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
        if backends.most is not None and line.busy > backends.most:
            lines.release(chosen, line)
            return _BUSY
        return line, lambda _: lines.release(chosen, line)


@dataclass(frozen=True, slots=True)
class _Multi:
    """Makes calls of one kind."""

    channel: AioFilteredChannel
    kind: str
    method: str
    serialize: Any
    deserialize: Any
    stand_in: Any

    def __call__(self, request: Any = None, **options: Any) -> Any:
        """Make a call."""
        bound = self.channel.bind_now(self.method, options.get("timeout"), options.get("metadata"))
        if bound is not None:
            return self.start(bound, request, options)
        token = _started.set((self, options))
        # It would make a header of it, which is for the call itself to do.
        passed = {name: value for name, value in options.items() if name != "compression"}
        try:
            return self.stand_in(request, **passed)
        finally:
            _started.reset(token)

    def start(self, bound: _Bound, request: Any, options: dict[str, Any]) -> Any:
        """Make a call that was judged."""
        multi = bound.line.multi(self.kind, self.method, self.serialize, self.deserialize)
        metadata = (*bound.metadata, *bound.line.metadata)
        try:
            call = multi(request, **{**options, "timeout": bound.timeout, "metadata": metadata})
        except BaseException:
            bound.release(None)
            raise
        call.add_done_callback(bound.release)
        return call if bound.edits is None else EditedAioCall(call, bound.edits)


_started: ContextVar[tuple[_Multi, dict[str, Any]]] = ContextVar("_started")


class _Ours:
    """Goes last among the interceptors of a call: it makes the call itself."""

    def __init__(self, channel: AioFilteredChannel) -> None:
        self._channel = channel

    async def go(self, details: grpc.aio.ClientCallDetails, request: Any) -> Any:
        multi, options = _started.get()
        bound = await self._channel.bind(details)
        # Interceptors of the user may have changed these.
        changed = {"credentials": details.credentials, "wait_for_ready": details.wait_for_ready}
        return multi.start(bound, request, {**options, **changed})


class _UnaryUnary(_Ours, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, _: Any, client_call_details: Any, request: Any) -> Any:
        return await self.go(client_call_details, request)


class _UnaryStream(_Ours, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, _: Any, client_call_details: Any, request: Any) -> Any:
        return await self.go(client_call_details, request)


class _StreamUnary(_Ours, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, _: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self.go(client_call_details, request_iterator)


class _StreamStream(_Ours, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, _: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self.go(client_call_details, request_iterator)
