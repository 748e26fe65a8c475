"""A channel with filters for threads.

`bind_call` decides where a call goes. This module and `aio_channel` contain what differs between grpcio's two kinds of
channel: with threads, making a call may block, and returns a response, a future or an iterator, or raises; on an event
loop it returns a call object at once, which is awaited.
"""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.calls.drivers import drive, effect_on_thread
from authplane.dataplane.runtime.channels.bind_call import AskedCall, AwaitPlan, Step, TakeChannel, bind_call
from authplane.dataplane.runtime.channels.call_tokens import AwaitToken
from authplane.dataplane.runtime.channels.channel_plan import CLOSED, BoundCall, Naming
from authplane.dataplane.runtime.channels.current_plan import ThreadCurrentPlan
from authplane.dataplane.runtime.channels.edited_calls import EditedCall
from authplane.dataplane.runtime.connections.call_kinds import MakesCalls, Method, named
from authplane.dataplane.runtime.connections.channel_pool import ThreadChannelPool
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.failed_call import FailedCall
from authplane.dataplane.runtime.connections.jwt_threads import wait_for_token, when_ended
from authplane.dataplane.runtime.connections.side_channels import SideChannels


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChannelParts:
    """What a channel is made of."""

    naming: Naming
    plan: ThreadCurrentPlan
    pool: ThreadChannelPool
    side: SideChannels
    close: Callable[[], None]
    only: grpc.Channel | None = None
    """The channel that all calls go to, if that is always the same one."""


class FilteredChannel(MakesCalls, grpc.Channel):
    """Runs filters on every call, then sends it on the channel of its route."""

    def __init__(self, parts: ThreadChannelParts) -> None:
        self._parts = parts
        self._plan = parts.plan
        self._only = parts.only

    def subscribe(self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False) -> None:
        """Tell how the channel is; one that may lead anywhere is ready when it knows where calls go."""
        if self._only is not None:
            self._only.subscribe(callback, try_to_connect)
        else:
            self._plan.tell(callback)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
        if self._only is not None:
            self._only.unsubscribe(callback)
        else:
            self._plan.tell_no_more(callback)

    def close(self) -> None:
        """End the channel and all of its calls."""
        self._plan.close()
        self._parts.pool.close()
        self._parts.side.close()
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, method: str, given: "_Given") -> BoundCall | Stop:
        """Run the filters of a new call; the caller waits for them, at most until the call's deadline."""
        if self._plan.closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        parts, deadline = self._parts, Deadline(given.timeout)
        asked = AskedCall(method, given.metadata, given.credentials, bool(given.wait_for_ready))

        def take(step: Step) -> Any:
            match step:
                case AwaitPlan(patient):
                    return parts.plan.wait(deadline, patient=patient)
                case TakeChannel(key):
                    return parts.pool.take(key)
                case AwaitToken(source):
                    return wait_for_token(source, deadline)
                case _:
                    return effect_on_thread(step, parts.side, None, deadline.until)

        return drive(bind_call(parts.naming, parts.plan, parts.pool, asked, deadline), take)

    def _multi(self, method: Method) -> Any:
        return _StreamedMulti(self, method) if method.kind.endswith("stream") else _Multi(self, method)


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

    def passed(self, bound: BoundCall) -> dict[str, Any]:
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
            return FailedCall(bound)
        return _started(bound, lambda: self.method.on(bound.pooled).future(given.request, **given.passed(bound)))

    def _blocking(self, given: _Given) -> tuple[Any, Any]:
        bound = _begin(self, given)
        if isinstance(bound, Stop):
            raise FailedCall(bound)
        try:
            response, call = self.method.on(bound.pooled).with_call(given.request, **given.passed(bound))
        except grpc.RpcError as error:
            bound.tokens.ended(getattr(error, "code", _no_code)())
            raise
        except ValueError:
            if bound.pooled.kept:
                raise
            raise FailedCall(CLOSED) from None
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
            return FailedCall(bound)
        made: Iterator[Any] = _started(
            bound, lambda: self.method.on(bound.pooled)(given.request, **given.passed(bound))
        )
        return made


# Each of them is for two kinds: the argument is a request or an iterator of requests.
grpc.UnaryUnaryMultiCallable.register(_Multi)
grpc.StreamUnaryMultiCallable.register(_Multi)
grpc.UnaryStreamMultiCallable.register(_StreamedMulti)
grpc.StreamStreamMultiCallable.register(_StreamedMulti)


def _begin(multi: _Multi | _StreamedMulti, given: _Given) -> BoundCall | Stop:
    return multi.channel.begin(multi.method.path, given)


def _no_code() -> None:
    """Return the status of an error without one."""


def _started(bound: BoundCall, start: Callable[[], Any]) -> Any:
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
