"""Tokens for the calls of channels on event loops; `jwt_calls` decides what happens to a call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Code, Stop
from authplane.dataplane.runtime.connections.call_kinds import interceptors_of
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.failed_call import aio_failure
from authplane.dataplane.runtime.connections.jwt_calls import LATE, failure_of, joined, tell_refused
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.dataplane.runtime.connections.wake_loop import settle_soon
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer

C = TypeVar("C")

_READABLE: Final = Stop(code=Code.UNAUTHENTICATED, message="call credentials need an encrypted connection")


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
        deadline = Deadline(details.timeout)
        try:
            async with asyncio.timeout(details.timeout):
                answer = await token_of(self._source)
        except TimeoutError:
            raise aio_failure(LATE) from None
        if not isinstance(answer, Bearer):
            raise aio_failure(failure_of(answer))
        try:
            call: Any = await continuation(_attached(details, self._credentials, deadline.left()), request)
        except grpc.aio.UsageError as error:
            # grpcio's own check, which it does not make a status of.
            if "secure channel" not in str(error):
                raise
            raise aio_failure(_READABLE) from None
        source = self._source
        call.add_done_callback(lambda ended: tell_refused(source, answer, ended_with(ended)))
        return cast("C", call)


async def token_of(source: TokenSource) -> Answer:
    """Return what becomes of a call."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Answer] = loop.create_future()
    answer = source.ask(lambda answer: settle_soon(loop, told, answer))
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


def _attached(
    details: grpc.aio.ClientCallDetails, credentials: grpc.CallCredentials, timeout: float | None
) -> grpc.aio.ClientCallDetails:
    return grpc.aio.ClientCallDetails(
        details.method, timeout, details.metadata, joined(details.credentials, credentials), details.wait_for_ready
    )
