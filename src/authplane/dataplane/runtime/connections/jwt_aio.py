"""Tokens for the calls of asynchronous channels."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import grpc
import grpc.aio

from authplane.dataplane.runtime.connections.call_kinds import interceptors_of
from authplane.dataplane.runtime.connections.failed_call import aio_failure
from authplane.dataplane.runtime.connections.jwt_threads import LATE, joined, status_of, tell_refused
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.runtime.clock import stopwatch
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer

C = TypeVar("C")

_READABLE: Final = "call credentials need a connection with privacy and integrity"


def aio_interceptors(source: TokenSource, credentials: grpc.CallCredentials) -> tuple[grpc.aio.ClientInterceptor, ...]:
    """Return interceptors for each kind of call.

    They fail calls for which there is no token with the right status, and attach the credentials to the others.
    """
    return interceptors_of(_Token(source, credentials).see_to)


class _Token:
    """Sees to the token of a call."""

    def __init__(self, source: TokenSource, credentials: grpc.CallCredentials) -> None:
        self._source = source
        self._credentials = credentials

    async def see_to(
        self, continuation: Callable[..., Awaitable[C]], details: grpc.aio.ClientCallDetails, request: object
    ) -> C:
        """Let a call go on with credentials, or fail it."""
        elapsed = stopwatch()
        try:
            async with asyncio.timeout(details.timeout):
                answer = await token_of(self._source)
        except TimeoutError:
            raise aio_failure(grpc.StatusCode.DEADLINE_EXCEEDED, LATE) from None
        if not isinstance(answer, Bearer):
            raise aio_failure(status_of(answer), answer.message)
        left = None if details.timeout is None else max(details.timeout - elapsed(), 0.0)
        attached = _attached(details, self._credentials, left)
        try:
            call: Any = await continuation(attached, request)
        except grpc.aio.UsageError as error:
            # grpcio's own check, which it does not make a status of.
            if "secure channel" not in str(error):
                raise
            raise aio_failure(grpc.StatusCode.UNAUTHENTICATED, _READABLE) from None
        source = self._source
        call.add_done_callback(lambda ended: tell_refused(source, answer, ended_with(ended)))
        return cast("C", call)


async def token_of(source: TokenSource) -> Answer:
    """Return what becomes of a call."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Answer] = loop.create_future()

    def tell(answer: Answer) -> None:
        # The loop may be closed by now: then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, told, answer)

    answer = source.ask(tell)
    return await told if answer is None else answer


def ended_with(call: Any) -> grpc.StatusCode | None:
    """Return the status of a call that has ended, without waiting: it is known, and yet grpcio only awaits it."""
    asking = call.code()
    try:
        asking.send(None)
    except StopIteration as known:
        code: grpc.StatusCode = known.value
        return code
    asking.close()
    return None


def _settle(told: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not told.done():
        told.set_result(answer)


def _attached(
    details: grpc.aio.ClientCallDetails, credentials: grpc.CallCredentials, timeout: float | None
) -> grpc.aio.ClientCallDetails:
    return grpc.aio.ClientCallDetails(
        details.method, timeout, details.metadata, joined(details.credentials, credentials), details.wait_for_ready
    )
