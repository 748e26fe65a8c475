"""A channel of threads whose calls filters judge."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc

from authplane.filters.calls import Code, Stop
from authplane.filters.chain import run_chain
from authplane.io.calling.edited_calls import EditedCall
from authplane.io.calling.plan import CLOSED, LATE, Backends, Naming, Plan, State, as_metadata, shortest
from authplane.io.clock import stopwatch
from authplane.io.dialing import CredentialsUnusableError
from authplane.io.failed_call import FailedCall
from authplane.io.interceptors.gate import STATUSES, ResponseEdits, concluded, edits_of, trailers_of
from authplane.io.interceptors.judging import CallEndedError, judge
from authplane.io.lines import Line, Lines
from authplane.io.side_channels import SideChannels

_BUSY: Final = Stop(code=Code.UNAVAILABLE, message="too many calls are under way to this cluster")
_STATES: Final = grpc.ChannelConnectivity


class Course:
    """What a channel obeys; calls wait for the first plan."""

    def __init__(self, state: State = None) -> None:
        self._state = state
        self._closed = False
        self._changed = threading.Condition()
        self._told: list[Callable[[grpc.ChannelConnectivity], None]] = []

    @property
    def connectivity(self) -> grpc.ChannelConnectivity:
        """How the channel is: ready when it has a plan."""
        if self._closed:
            return _STATES.SHUTDOWN
        match self._state:
            case None:
                return _STATES.CONNECTING
            case Stop():
                return _STATES.TRANSIENT_FAILURE
            case Plan():
                return _STATES.READY

    def set(self, state: State) -> None:
        """Obey something else from now on."""
        with self._changed:
            self._state = state
            self._changed.notify_all()
            told = tuple(self._told)
        for each in told:
            each(self.connectivity)

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
        callback(self.connectivity)

    def tell_no_more(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
        with self._changed:
            self._told = [each for each in self._told if each is not callback]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A call that may go out: where, and with what."""

    line: Line
    release: Callable[[], None]
    timeout: float | None
    metadata: Any
    edits: ResponseEdits | None


class FilteredChannel(grpc.Channel):
    """Judges every call, then lets the channel make it to which the call's route leads."""

    def __init__(
        self,
        naming: Naming,
        course: Course,
        lines: Lines,
        side: SideChannels,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._naming = naming
        self._course = course
        self._lines = lines
        self._side = side
        self._close = close

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return _Multi(self, "unary_unary", method, request_serializer, response_deserializer)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return _StreamedMulti(self, "unary_stream", method, request_serializer, response_deserializer)

    def stream_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return _Multi(self, "stream_unary", method, request_serializer, response_deserializer)

    def stream_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Return what makes calls."""
        return _StreamedMulti(self, "stream_stream", method, request_serializer, response_deserializer)

    def subscribe(self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False) -> None:
        """Tell how the channel is; it is ready when it knows where calls go."""
        del try_to_connect
        self._course.tell(callback)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
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

    def begin(self, method: str, timeout: float | None, metadata: Any, *, patient: bool) -> _Bound | Stop:
        """Let filters judge a call that starts; whoever starts it waits for them."""
        elapsed = stopwatch()
        plan = self._course.plan(timeout, patient=patient)
        if isinstance(plan, Stop):
            return plan
        call = self._naming.call(method, as_metadata(metadata), timeout)
        routed = plan.rules.route(call)
        try:
            verdict = concluded(judge(run_chain(routed.filters, call), self._side, None, timeout), routed)
        except CallEndedError:
            return LATE
        if isinstance(verdict, Stop):
            return verdict
        backends = plan.backends(routed.cluster)
        if isinstance(backends, Stop):
            return backends
        taken = self._take(backends)
        if isinstance(taken, Stop):
            return taken
        line, release = taken
        left = None if timeout is None else max(timeout - elapsed(), 0.0)
        return _Bound(line, release, shortest(left, routed.longest), verdict.metadata, edits_of(verdict))

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
        if backends.most is not None and line.busy > backends.most:
            lines.release(chosen, line)
            return _BUSY
        return line, lambda: lines.release(chosen, line)


def _is_broken(line: Line) -> bool:
    if line.watch is None:
        line.watch = _Watch()
        line.channel.subscribe(line.watch, try_to_connect=True)
    return bool(line.watch.state is _STATES.TRANSIENT_FAILURE)


class _Watch:
    """Knows how a channel is."""

    state: grpc.ChannelConnectivity | None = None

    def __call__(self, state: grpc.ChannelConnectivity) -> None:
        self.state = state


@dataclass(frozen=True, slots=True)
class _Started:
    """What a user gives to a call besides its request."""

    timeout: float | None = None
    metadata: Any = None
    credentials: grpc.CallCredentials | None = None
    wait_for_ready: bool | None = None
    compression: grpc.Compression | None = None


@dataclass(frozen=True, slots=True)
class _Multi:
    """Makes calls with one response."""

    channel: FilteredChannel
    kind: str
    method: str
    serialize: Any
    deserialize: Any

    def __call__(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Make a call and wait for the response."""
        return self._blocking(request, _Started(*arguments, **options))[0]

    def with_call(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Make a call and wait for the response; returns it and the call."""
        return self._blocking(request, _Started(*arguments, **options))

    def future(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Make a call; filters are waited for, the response is not."""
        given = _Started(*arguments, **options)
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            return _failed(bound)
        return _started(self, bound, given, lambda multi, passed: multi.future(request, **passed))

    def _blocking(self, request: Any, given: _Started) -> tuple[Any, Any]:
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            raise _failed(bound)
        try:
            multi = bound.line.multi(self.kind, self.method, self.serialize, self.deserialize)
            response, call = multi.with_call(request, **_passed(bound, given))
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
    kind: str
    method: str
    serialize: Any
    deserialize: Any

    def __call__(self, request: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        """Make a call; filters are waited for, responses are not."""
        given = _Started(*arguments, **options)
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            return _failed(bound)
        made: Iterator[Any] = _started(self, bound, given, lambda multi, passed: multi(request, **passed))
        return made


# They stand for two kinds each: one argument is a request, or an iterator of them.
grpc.UnaryUnaryMultiCallable.register(_Multi)
grpc.StreamUnaryMultiCallable.register(_Multi)
grpc.UnaryStreamMultiCallable.register(_StreamedMulti)
grpc.StreamStreamMultiCallable.register(_StreamedMulti)


def _begin(multi: _Multi | _StreamedMulti, given: _Started) -> _Bound | Stop:
    return multi.channel.begin(multi.method, given.timeout, given.metadata, patient=bool(given.wait_for_ready))


def _started(
    multi: _Multi | _StreamedMulti, bound: _Bound, given: _Started, start: Callable[[Any, dict[str, Any]], Any]
) -> Any:
    try:
        made = bound.line.multi(multi.kind, multi.method, multi.serialize, multi.deserialize)
        call = start(made, _passed(bound, given))
    except BaseException:
        bound.release()
        raise
    if not call.add_callback(bound.release):
        bound.release()
    return call if bound.edits is None else EditedCall(call, bound.edits)


def _passed(bound: _Bound, given: _Started) -> dict[str, Any]:
    return {
        "timeout": bound.timeout,
        "metadata": (*bound.metadata, *bound.line.metadata),
        "credentials": given.credentials,
        "wait_for_ready": given.wait_for_ready,
        "compression": given.compression,
    }


def _failed(stop: Stop) -> FailedCall:
    return FailedCall(STATUSES[stop.code], stop.message, trailers_of(stop))
