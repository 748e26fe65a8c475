"""Handlers of a server with threads, behind a gate.

`gated_handlers` decides what filters do with a call. This module and `aio_handlers` contain how a handler is called:
with threads it takes and returns iterators and ends a call with an exception, and grpcio checks nothing of a handler
that an interceptor has replaced; on an event loop it may be a coroutine, an asynchronous generator or made for threads.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import grpc

from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.calls.call_gate import Gate, edits_of
from authplane.dataplane.runtime.calls.drivers import drive, effect_on_thread
from authplane.dataplane.runtime.connections.failed_call import STATUSES
from authplane.dataplane.runtime.connections.side_channels import SideChannels
from authplane.dataplane.runtime.servers.call_contexts import EditedContext
from authplane.dataplane.runtime.servers.gated_handlers import (
    NO_REQUEST,
    NOT_FOUND,
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
from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")
_UNREADABLE: Final = "Exception deserializing request!"
_UNWRITTEN: Final = "Failed to serialize response!"
"""What grpcio itself says."""


class ThreadGated(Gated):
    """All handlers of a server with threads, behind its gate."""

    def __init__(
        self,
        gate: Gate,
        side: SideChannels,
        found: Registered,
        interceptors: Sequence[grpc.ServerInterceptor] = (),
    ) -> None:
        super().__init__(gate, found, interceptors)
        self._side = side

    def admit(self, method: str, context: Any) -> Any:
        """Run the filters of a call; return the context for its handler, or end the call."""
        admission = self.begin(method, context, authority_of(context))
        if admission is None:
            return context
        verdict = drive(admission, lambda effect: effect_on_thread(effect, self._side, context.add_callback))
        if verdict is None:
            return context
        if isinstance(verdict, Stop):
            _end(context, verdict)
        return EditedContext(context, verdict.metadata, edits_of(verdict))

    def _wrap(self, found: Handler, method: str) -> Handler:
        inner = behaviour_of(found)
        wrapped = _streaming(self, inner, method) if found.response_streaming else _single(self, inner, method)
        for name in ("experimental_non_blocking", "experimental_thread_pool"):
            if hasattr(inner, name):
                setattr(wrapped, name, getattr(inner, name))
        return rebuilt(found, wrapped)

    def _late(self, found: MaybeHandler, method: str) -> Handler:
        def behave(incoming: Any, context: Any) -> Any:
            admitted = self.admit(method, context)
            final = self._intercepted(Details(method, admitted.invocation_metadata()))
            if final is None:
                _end(context, NOT_FOUND)
            streamed = found is None or found.request_streaming
            responses = _called(final, incoming if streamed else iter((incoming,)), admitted)
            # A handler with one response may serve a method with many, and vice versa.
            return responses if found is None or found.response_streaming else next(responses, None)

        return handler_like(found, behave)

    def _intercepted(self, details: Any) -> MaybeHandler:
        def step(place: int, seen: Any) -> MaybeHandler:
            if place == len(self._interceptors):
                return self._find(seen)
            made: MaybeHandler = self._interceptors[place].intercept_service(lambda after: step(place + 1, after), seen)
            return made

        return step(0, details)


def _single(gated: ThreadGated, inner: Behaviour, method: str) -> Behaviour:
    def behave(request: Any, context: Any) -> Any:
        admitted = gated.admit(method, context)
        response = inner(request, admitted)
        if admitted is not context and response is not None:
            admitted.respond()
        return response

    return behave


def _streaming(gated: ThreadGated, inner: Behaviour, method: str) -> Behaviour:
    def behave(request: Any, context: Any, *callbacks: Callable[[Any], None]) -> Any:
        admitted = gated.admit(method, context)
        if admitted is context:
            return inner(request, context, *callbacks)
        if not callbacks:
            return _begun(inner(request, admitted), admitted)

        def send(response: Any) -> None:
            if response is not None:
                admitted.respond()
            callbacks[0](response)

        return inner(request, admitted, send)

    return behave


def _begun(responses: Iterator[Any], context: EditedContext) -> Iterator[Any]:
    for response in _each(responses):
        context.respond()
        yield response


def _each(responses: Iterator[Any]) -> Iterator[Any]:
    """Read responses as grpcio does: they are an iterator, and None ends it."""
    while (response := next(responses, None)) is not None:
        yield response


def _called(handler: Handler, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    """Call a handler of any kind; bytes go in and come out."""
    deserialize = handler.request_deserializer

    def read() -> Iterator[Any]:
        for each in requests:
            yield each if deserialize is None else _converted(deserialize, each, context, _UNREADABLE)

    if handler.request_streaming:
        argument: Any = read()
    else:
        argument = next(read(), None)
        if argument is None:
            _end(context, NO_REQUEST)
    made = behaviour_of(handler)(argument, context)
    return _written(handler, _each(made) if handler.response_streaming else (made,), context)


def _written(handler: Handler, responses: Iterable[Any], context: Any) -> Iterator[bytes]:
    serialize = handler.response_serializer
    for response in responses:
        written = response if serialize is None else _converted(serialize, response, context, _UNWRITTEN)
        if isinstance(context, EditedContext):
            context.respond()
        yield written


def _converted(convert: Callable[[Any], Any], message: Any, context: Any, words: str) -> Any:
    try:
        return convert(message)
    except Exception as error:  # noqa: BLE001 (as grpcio does: the other side sent what is no message)
        _log.error("%s %s", words, place_of(error))
        _end_badly(context, words)


def _end_badly(context: Any, words: str) -> NoReturn:
    """End a call that cannot be answered; as in grpcio, the status that its handler set applies."""
    code, details = context.code(), context.details()
    chosen = grpc.StatusCode.INTERNAL if code in {None, grpc.StatusCode.OK} else code
    context.abort(chosen, words if details is None else details.decode(errors="replace"))
    raise AssertionError


def _end(context: Any, stop: Stop) -> NoReturn:
    context.set_trailing_metadata(tuple(stop.trailers))
    context.abort(STATUSES[stop.code], stop.message)
    raise AssertionError


def authority_of(context: Any) -> str | None:
    """Return the authority of a call; grpcio has it for calls of generic handlers, but not in its public interface."""
    event = getattr(context, "_rpc_event", None)
    host = getattr(getattr(event, "call_details", None), "host", b"")
    return host.decode(errors="replace") if host else None
