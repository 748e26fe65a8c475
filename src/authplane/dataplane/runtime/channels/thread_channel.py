"""A channel of threads whose calls filters judge."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import grpc

from authplane.dataplane.filters.calls import Code, Stop
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.runtime.calls.call_gate import STATUSES, concluded, edits_of, trailers_of
from authplane.dataplane.runtime.calls.filter_drivers import VERDICTS, judge, judge_at_once
from authplane.dataplane.runtime.channels.call_tokens import NO_TOKENS, needed_by, wait_for_tokens
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
from authplane.dataplane.runtime.channels.edited_calls import EditedCall
from authplane.dataplane.runtime.connections.call_kinds import MakesCalls, Method, named
from authplane.dataplane.runtime.connections.channel_pool import Line, Lines
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError
from authplane.dataplane.runtime.connections.failed_call import FailedCall
from authplane.dataplane.runtime.connections.jwt_threads import when_ended
from authplane.dataplane.runtime.connections.side_channels import CallEndedError, SideChannels
from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")


class Course:
    """What a channel obeys; calls wait for the first plan."""

    def __init__(self, state: State = None) -> None:
        self._state = state
        self._closed = False
        self._changed = threading.Condition()
        self._told: list[Callable[[grpc.ChannelConnectivity], None]] = []

    @property
    def closed(self) -> bool:
        """Whether the channel has ended."""
        return self._closed

    @property
    def connectivity(self) -> grpc.ChannelConnectivity:
        """How the channel is: ready when it has a plan."""
        return connectivity_of(self._state, closed=self._closed)

    def set(self, state: State) -> None:
        """Obey something else from now on."""
        with self._changed:
            self._state = state
            self._changed.notify_all()
            told = tuple(self._told)
        for each in told:
            self._tell(each)

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def plan(self, limit: float | None, *, patient: bool) -> Plan | Stop:
        """Return the plan; a call that is patient waits for one even if there is a reason why there is none."""
        state = self._state
        if isinstance(state, Plan) and not self._closed:
            return state

        def known() -> bool:
            return self._closed or isinstance(self._state, Plan) or (self._state is not None and not patient)

        with self._changed:
            if not self._changed.wait_for(known, limit):
                return LATE
            return CLOSED if self._closed or self._state is None else self._state

    def tell(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell how the channel is, now and when it changes."""
        with self._changed:
            self._told.append(callback)
        self._tell(callback)

    def tell_no_more(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
        with self._changed:
            self._told = [each for each in self._told if each != callback]

    def _tell(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        try:
            callback(self.connectivity)
        except Exception as error:  # noqa: BLE001 (as grpcio does: what comes next does not depend on it)
            _log.error("a callback for the state of a channel failed: %s", place_of(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a channel is made of."""

    naming: Naming
    course: Course
    lines: Lines
    side: SideChannels
    close: Callable[[], None]
    only: grpc.Channel | None = None
    """The channel that all calls go to, if that is always the same one."""


class FilteredChannel(MakesCalls, grpc.Channel):
    """Judges every call, then lets the channel make it to which the call's route leads."""

    def __init__(self, parts: Parts) -> None:
        self._naming = parts.naming
        self._course = parts.course
        self._lines = parts.lines
        self._side = parts.side
        self._close = parts.close
        self._only = parts.only

    def subscribe(self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False) -> None:
        """Tell how the channel is; one that may lead anywhere is ready when it knows where calls go."""
        if self._only is not None:
            self._only.subscribe(callback, try_to_connect)
        else:
            self._course.tell(callback)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
        if self._only is not None:
            self._only.unsubscribe(callback)
        else:
            self._course.tell_no_more(callback)

    def close(self) -> None:
        """End the channel and all of its calls."""
        self._course.close()
        self._lines.close()
        self._side.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, method: str, given: "_Given") -> Bound | Stop:
        """Let filters judge a call that starts; whoever starts it waits for them, not longer than the call may take."""
        if self._course.closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        until = None if given.timeout is None else monotonic() + given.timeout
        plan = self._course.plan(given.timeout, patient=bool(given.wait_for_ready))
        if isinstance(plan, Stop):
            return plan
        call = self._naming.call(method, as_metadata(given.metadata), _left(until))
        routed = plan.rules.route(call)
        flow = run_chain(routed.filters, call)
        verdict = judge_at_once(flow)
        if not isinstance(verdict, VERDICTS):
            try:
                verdict = judge(flow, verdict, self._side, None, until)
            except CallEndedError:
                return LATE
        verdict = concluded(verdict, routed)
        if isinstance(verdict, Stop) or _left(until) == 0:
            return verdict if isinstance(verdict, Stop) else LATE
        backends = plan.backends(routed.cluster)
        taken = backends if isinstance(backends, Stop) else self._take(backends)
        if isinstance(taken, Stop):
            return taken
        line, release = taken
        sources = needed_by(line, given.credentials)
        tokens = wait_for_tokens(sources, until) if sources else NO_TOKENS
        if isinstance(tokens, Stop):
            release()
            return tokens
        limit = shortest(_left(until), routed.longest)
        return Bound(line, release, limit, verdict.metadata, edits_of(verdict), tokens)

    def _multi(self, method: Method) -> Any:
        return _StreamedMulti(self, method) if method.kind.endswith("stream") else _Multi(self, method)

    def _take(self, backends: Backends) -> tuple[Line, Callable[[], None]] | Stop:
        """Begin to use the first line that is not known to be broken; if all are, the first."""
        lines, chosen = self._lines, backends.keys[0]
        try:
            for key in backends.keys if len(backends.keys) > 1 else ():
                line = lines.take(key)
                broken = line is None or _is_broken(line)
                if line is not None:
                    lines.release(key, line)
                if not broken:
                    chosen = key
                    break
            line = lines.take(chosen)
        except CredentialsUnusableError as error:
            return Stop(code=Code.UNAVAILABLE, message=str(error))
        if line is None:
            return CLOSED
        if backends.are_busy(line):
            lines.release(chosen, line)
            return BUSY
        return line, lambda: lines.release(chosen, line)


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - monotonic(), 0.0)


def _is_broken(line: Line) -> bool:
    if line.watch is None:
        line.watch = _Watch()
        line.channel.subscribe(line.watch, try_to_connect=True)
    return bool(line.watch.state is grpc.ChannelConnectivity.TRANSIENT_FAILURE)


class _Watch:
    """Knows how a channel is."""

    state: grpc.ChannelConnectivity | None = None

    def __call__(self, state: grpc.ChannelConnectivity) -> None:
        self.state = state


@dataclass(frozen=True, slots=True)
class _Given:
    """What a user gives to a call."""

    request: Any
    """One, or an iterator of them."""
    timeout: float | None = None
    metadata: Any = None
    credentials: grpc.CallCredentials | None = None
    wait_for_ready: bool | None = None
    compression: grpc.Compression | None = None

    def passed(self, bound: Bound) -> dict[str, Any]:
        """Return what is passed on besides the request."""
        return {
            "timeout": bound.timeout,
            "metadata": bound.sent,
            "credentials": self.credentials,
            "wait_for_ready": self.wait_for_ready,
            "compression": self.compression,
        }


@dataclass(frozen=True, slots=True)
class _Multi:
    """Makes calls with one response."""

    channel: FilteredChannel
    method: Method

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Make a call and wait for the response."""
        return self._blocking(_Given(*arguments, **named(options)))[0]

    def with_call(self, *arguments: Any, **options: Any) -> Any:
        """Make a call and wait for the response; returns it and the call."""
        return self._blocking(_Given(*arguments, **named(options)))

    def future(self, *arguments: Any, **options: Any) -> Any:
        """Make a call; filters are waited for, the response is not."""
        given = _Given(*arguments, **named(options))
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            return _failed(bound)
        return _started(bound, lambda: self.method.on(bound.line).future(given.request, **given.passed(bound)))

    def _blocking(self, given: _Given) -> tuple[Any, Any]:
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            raise _failed(bound)
        try:
            response, call = self.method.on(bound.line).with_call(given.request, **given.passed(bound))
        except grpc.RpcError as error:
            bound.tokens.ended(getattr(error, "code", _no_code)())
            raise
        except ValueError:
            if bound.line.kept:
                raise
            raise _failed(CLOSED) from None
        finally:
            bound.release()
        return response, call if bound.edits is None else EditedCall(call, bound.edits)


@dataclass(frozen=True, slots=True)
class _StreamedMulti:
    """Makes calls with many responses."""

    channel: FilteredChannel
    method: Method

    def __call__(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        """Make a call; filters are waited for, responses are not."""
        given = _Given(*arguments, **named(options))
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            return _failed(bound)
        made: Iterator[Any] = _started(bound, lambda: self.method.on(bound.line)(given.request, **given.passed(bound)))
        return made


# They stand for two kinds each: one argument is a request, or an iterator of them.
grpc.UnaryUnaryMultiCallable.register(_Multi)
grpc.StreamUnaryMultiCallable.register(_Multi)
grpc.UnaryStreamMultiCallable.register(_StreamedMulti)
grpc.StreamStreamMultiCallable.register(_StreamedMulti)


def _begin(multi: _Multi | _StreamedMulti, given: _Given) -> Bound | Stop:
    return multi.channel.begin(multi.method.path, given)


def _no_code() -> None:
    """Stand for the status of an error that has none."""


def _started(bound: Bound, start: Callable[[], Any]) -> Any:
    try:
        call = start()
    except BaseException:
        bound.release()
        raise
    if not call.add_callback(bound.release):
        bound.release()
    if bound.tokens.pairs:
        when_ended(call, bound.tokens.ended)
    return call if bound.edits is None else EditedCall(call, bound.edits)


def _failed(stop: Stop) -> FailedCall:
    return FailedCall(STATUSES[stop.code], stop.message, trailers_of(stop))
