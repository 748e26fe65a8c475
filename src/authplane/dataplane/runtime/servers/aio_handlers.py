"""Handlers of a server with an event loop, behind a gate; `thread_handlers` says why there are two."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from types import CoroutineType as Coroutine
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.calls.call_gate import Gate, edits_of
from authplane.dataplane.runtime.calls.drivers import drive_on_loop, effect_on_loop
from authplane.dataplane.runtime.calls.grpcio_internals import cygrpc
from authplane.dataplane.runtime.connections.failed_call import STATUSES
from authplane.dataplane.runtime.connections.side_channels import AioSideChannels
from authplane.dataplane.runtime.servers.call_contexts import EditedAioContext, ThreadContext
from authplane.dataplane.runtime.servers.gated_handlers import (
    NO_REQUEST,
    NOT_FOUND,
    Admission,
    Behaviour,
    Details,
    Gated,
    Handler,
    MaybeHandler,
    behaviour_of,
    handler_like,
    rebuilt,
)
from authplane.dataplane.runtime.servers.registered_handlers import Registered

Admit: TypeAlias = Callable[[Any], Any]
"""Runs the filters of a call, given its context; see `AioGated.admit`."""


class AioGated(Gated):
    """All handlers of a server with an event loop, behind its gate."""

    def __init__(
        self,
        gate: Gate,
        side: AioSideChannels,
        found: Registered,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        pool: Executor | None = None,
    ) -> None:
        super().__init__(gate, found, interceptors)
        self._side = side
        self._pool = pool

    def admit(self, method: str, context: Any) -> Any:
        """Run the filters of a call; return the context for its handler, or an awaitable of it that may end the call.

        Most calls do not wait here, and a coroutine that never waits would take much of their time.
        """
        admission = self.begin(method, context, None)
        return context if admission is None else self._wait(admission, context)

    async def _wait(self, admission: Admission, context: Any) -> Any:
        verdict = await drive_on_loop(admission, lambda effect: effect_on_loop(effect, self._side))
        if verdict is None:
            return context
        if isinstance(verdict, Stop):
            await _end(context, verdict)
        return EditedAioContext(context, verdict.metadata, edits_of(verdict))

    def _wrap(self, found: Handler, method: str) -> Handler:
        found = on_loop(found, self._pool)
        inner = behaviour_of(found)
        admit = partial(self.admit, method)
        return rebuilt(found, _stream(admit, inner) if found.response_streaming else _single(admit, inner))

    def _late(self, found: MaybeHandler, method: str) -> Handler:
        streamed = found is None or found.request_streaming

        async def behave(incoming: Any, context: Any) -> Any:
            admitted = self.admit(method, context)
            if isinstance(admitted, Coroutine):
                admitted = await admitted
            final = await self._intercepted(0, Details(method, admitted.invocation_metadata()))
            if final is None:
                await _end(context, NOT_FOUND)
            called = _Called(on_loop(final, self._pool), context, admitted)
            return await called.run(incoming, streamed=streamed, many=found is None or found.response_streaming)

        return handler_like(found, behave)

    async def _intercepted(self, place: int, details: Any) -> MaybeHandler:
        if place == len(self._interceptors):
            return self._find(details)
        made: Any = self._interceptors[place].intercept_service(
            lambda after: self._intercepted(place + 1, after), details
        )
        final: MaybeHandler = await made
        return final


def _is_async(behaviour: Behaviour) -> bool:
    # As grpcio tells them apart.
    return inspect.iscoroutinefunction(behaviour) or inspect.isasyncgenfunction(behaviour)


def _single(admit: Admit, inner: Behaviour) -> Behaviour:
    async def behave(request: Any, context: Any) -> Any:
        admitted = admit(context)
        if isinstance(admitted, Coroutine):
            admitted = await admitted
        response = await inner(request, admitted)
        if admitted is not context and not _has_failed(context):
            await admitted.respond()
        return response

    return behave


def _stream(admit: Admit, inner: Behaviour) -> Behaviour:
    if inspect.iscoroutinefunction(inner):

        async def behave(request: Any, context: Any) -> None:
            admitted = admit(context)
            await inner(request, await admitted if isinstance(admitted, Coroutine) else admitted)

        return behave

    async def behave_with_generator(request: Any, context: Any) -> None:
        admitted = admit(context)
        if isinstance(admitted, Coroutine):
            admitted = await admitted
        async with aclosing(inner(request, admitted)) as responses:
            async for each in responses:
                await admitted.write(each)

    return behave_with_generator


def on_loop(handler: Handler, pool: Executor | None) -> Handler:
    """Return a handler for the event loop; one that is made for threads runs on those, as grpcio does it."""
    inner = behaviour_of(handler)
    if _is_async(inner):
        return handler
    streams = handler.request_streaming

    async def behave(request: Any, context: Any) -> Any:
        async with _on_threads(request, context, streams=streams) as (loop, argument, threaded):
            return await loop.run_in_executor(pool, inner, argument, threaded)

    async def behave_with_generator(request: Any, context: Any) -> AsyncIterator[Any]:
        async with _on_threads(request, context, streams=streams) as (loop, argument, threaded):
            async for each in cygrpc.generator_to_async_generator(inner(argument, threaded), loop, pool):
                yield each

    return rebuilt(handler, behave_with_generator if handler.response_streaming else behave)


@asynccontextmanager
async def _on_threads(
    request: Any, context: Any, *, streams: bool
) -> AsyncGenerator[tuple[asyncio.AbstractEventLoop, Any, ThreadContext]]:
    """Yield what a handler on a thread is called with, and end its call as it says."""
    loop = asyncio.get_running_loop()
    threaded = ThreadContext(context, loop)
    try:
        yield loop, cygrpc.async_generator_to_generator(request, loop) if streams else request, threaded
    except Exception:
        await threaded.conclude()
        raise
    finally:
        threaded.call_back()
    await threaded.conclude()


class _Called:
    """Calls a handler of any kind; bytes go in and come out."""

    def __init__(self, handler: Handler, context: Any, admitted: Any) -> None:
        self._handler = handler
        self._plain = context
        edits = admitted.edits if isinstance(admitted, EditedAioContext) else None
        self._context = EditedAioContext(
            context,
            admitted.invocation_metadata(),
            edits,
            deserialize=handler.request_deserializer,
            serialize=handler.response_serializer,
        )

    async def run(self, incoming: Any, *, streamed: bool, many: bool) -> Any:
        """Call it; one response is returned, several are written."""
        argument = await self._argument(incoming, streamed=streamed)
        made = behaviour_of(self._handler)(argument, self._context)
        if not self._handler.response_streaming:
            response = await made
            if _has_failed(self._plain):
                return None if many else b""
            return await self._answer(response, many=many)
        if inspect.isawaitable(made):
            return await made
        async with aclosing(made) as responses:
            async for each in responses:
                if not many:
                    return await self._answer(each, many=False)
                await self._answer(each, many=True)
        return None

    async def _argument(self, incoming: Any, *, streamed: bool) -> Any:
        if self._handler.request_streaming:
            return self._messages(incoming, streamed=streamed)
        async for each in self._messages(incoming, streamed=streamed):
            return each
        return await _end(self._plain, NO_REQUEST)

    async def _messages(self, incoming: Any, *, streamed: bool) -> AsyncIterator[Any]:
        # What is no message raises, and grpcio makes a status of it.
        read = self._handler.request_deserializer or _itself
        if not streamed:
            yield read(incoming)
            return
        async for each in incoming:
            yield read(each)

    async def _answer(self, response: Any, *, many: bool) -> Any:
        if many:
            await self._context.write(response)
            return None
        write = self._handler.response_serializer or _itself
        written = write(response)
        await self._context.respond()
        return written


def _itself(message: Any) -> Any:
    return message


def _has_failed(context: Any) -> bool:
    return context.code() not in {None, grpc.StatusCode.OK, 0}


async def _end(context: Any, stop: Stop) -> NoReturn:
    await context.abort(STATUSES[stop.code], stop.message, tuple(stop.trailers))
    raise AssertionError
