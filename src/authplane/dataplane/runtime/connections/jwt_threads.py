"""Tokens for the calls of channels with threads.

`jwt_calls` decides what happens to a call. Interceptors of threads and of event loops have different details, and fail
a call and learn its outcome differently: so each kind has its own.
"""

import contextlib
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import grpc

from authplane.core.values import dataclass
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.failed_call import FailedCall
from authplane.dataplane.runtime.connections.jwt_calls import failure_of, joined, tell_refused
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer

R = TypeVar("R")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class _Details(grpc.ClientCallDetails):
    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class JwtFileInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Attaches the token to calls, and fails calls without a token with the status of gRFC A97.

    The caller waits while the file is read for the first time, or after its token expired.
    """

    def __init__(self, source: TokenSource, credentials: grpc.CallCredentials) -> None:
        self._source = source
        self._credentials = credentials

    def intercept_unary_unary(
        self, continuation: Callable[..., C], client_call_details: grpc.ClientCallDetails, request: R
    ) -> C:
        """Attach the token to a call, or fail the call."""
        return self._see_to(continuation, client_call_details, request)

    def intercept_unary_stream(
        self, continuation: Callable[..., C], client_call_details: grpc.ClientCallDetails, request: R
    ) -> C:
        """Attach the token to a call, or fail the call."""
        return self._see_to(continuation, client_call_details, request)

    def intercept_stream_unary(
        self, continuation: Callable[..., C], client_call_details: grpc.ClientCallDetails, request_iterator: Iterator[R]
    ) -> C:
        """Attach the token to a call, or fail the call."""
        return self._see_to(continuation, client_call_details, request_iterator)

    def intercept_stream_stream(
        self, continuation: Callable[..., C], client_call_details: grpc.ClientCallDetails, request_iterator: Iterator[R]
    ) -> C:
        """Attach the token to a call, or fail the call."""
        return self._see_to(continuation, client_call_details, request_iterator)

    def _see_to(self, continuation: Callable[..., C], details: grpc.ClientCallDetails, request: object) -> C:
        deadline = Deadline(details.timeout)
        answer = wait_for_token(self._source, deadline)
        if not isinstance(answer, Bearer):
            # It represents a call of any kind.
            return cast("C", FailedCall(failure_of(answer)))
        call: Any = continuation(_attached(details, self._credentials, deadline.left()), request)
        source = self._source
        when_ended(call, lambda code: tell_refused(source, answer, code))
        return cast("C", call)


def wait_for_token(source: TokenSource, deadline: Deadline) -> Answer | None:
    """Return what becomes of a call; None if its time is over before that is known."""
    told: SimpleQueue[Answer] = SimpleQueue()
    answer = source.ask(told.put)
    if answer is not None:
        return answer
    try:
        return told.get(timeout=deadline.left())
    except Empty:
        return None


def when_ended(call: Any, tell: Callable[[object], None]) -> None:
    """Tell with which status a call has ended."""
    # Calls of grpcio's experimental single-threaded channels have no callbacks.
    with contextlib.suppress(NotImplementedError):
        call.add_done_callback(lambda ended: tell(ended.code()))


def _attached(
    details: grpc.ClientCallDetails, credentials: grpc.CallCredentials, timeout: float | None
) -> grpc.ClientCallDetails:
    return _Details(
        details.method,
        timeout,
        details.metadata,
        joined(details.credentials, credentials),
        # Older interceptors pass details without these.
        getattr(details, "wait_for_ready", None),
        getattr(details, "compression", None),
    )
